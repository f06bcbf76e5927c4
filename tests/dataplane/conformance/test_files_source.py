"""Landing folders have the laws of every source, on a disk and in a bucket."""

from pathlib import Path

import pytest

from rota.dataplane.ports import Ports
from rota.pipeline import Pipeline, delta, files
from rota.registry import open_ports
from rota.stores import open_objects
from tests.dataplane.conformance.source_suite import (
    AssigningSuite,
    FilingSuite,
    LeavingSuite,
    LosingSuite,
    RenamingSuite,
    ReplayingSuite,
    SharingSuite,
    SourceSuite,
    StartingSuite,
    WaitingSuite,
)


class FilesBench:
    """A landing folder; a file is one offset."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.landing, self.landed = folder, str(folder / "land"), 0

    def open(self, start: str | int = "earliest", most: int = 1000) -> Ports:
        return open_ports(self.declare("p", start, most), "g", "0" * 32)

    def declare(self, pipeline: str, start: str | int = "earliest", most: int = 1000) -> Pipeline:
        source = files(self.landing, format="json", schema="n int", settle=0.0, start=start, max_files=most)
        return Pipeline(source, delta(str(self.folder / "table")), name=pipeline)

    def land(self, key: str, count: int = 1) -> None:
        folder = self.folder / "land" / key
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(count):
            self.landed += 1
            (folder / f"{self.landed:03}.json").write_text('{"n": 1}\n')

    def change(self, partition: str, offset: int) -> None:
        self._file(partition, offset).write_text('{"n": 1}\n{"n": 2}\n')

    def lose(self, partition: str, offset: int) -> None:
        self._file(partition, offset).unlink()

    def blind(self, key: str) -> None:
        """Put a file in place of the folder: root may list every folder."""
        (self.folder / "land" / key).rename(self.folder / key)
        (self.folder / "land" / key).touch()

    def mend(self, key: str) -> None:
        (self.folder / "land" / key).unlink()
        (self.folder / key).rename(self.folder / "land" / key)

    def litter(self) -> str:
        (self.folder / "land" / "beside.json").touch()
        return "beside.json"

    def _file(self, partition: str, offset: int) -> Path:
        return self.folder / "land" / self.open().source.locate(partition, offset)


class BucketBench(FilesBench):
    """A landing folder in a bucket; the tables are on a disk."""

    def __init__(self, folder: Path, bucket: str) -> None:
        super().__init__(folder)
        self.landing = f"{bucket}/land"

    def land(self, key: str, count: int = 1) -> None:
        for _ in range(count):
            self.landed += 1
            open_objects(self.landing).put(f"{key}/{self.landed:03}.json", b'{"n": 1}\n')

    def change(self, partition: str, offset: int) -> None:
        open_objects(self.landing).put(self.open().source.locate(partition, offset), b'{"n": 1}\n{"n": 2}\n')

    def lose(self, partition: str, offset: int) -> None:
        open_objects(self.landing).delete(self.open().source.locate(partition, offset))

    def litter(self) -> str:
        open_objects(self.landing).put("beside.json", b"")
        return "beside.json"


class FilesSuite(
    SourceSuite,
    SharingSuite,
    AssigningSuite,
    StartingSuite,
    LosingSuite,
    ReplayingSuite,
    FilingSuite,
    LeavingSuite,
    RenamingSuite,
):
    """The suites of landing folders, on a disk or in a bucket."""


class TestFilesSource(FilesSuite, WaitingSuite):
    bench = FilesBench


class TestBucketSource(FilesSuite):
    @pytest.fixture
    def place(self, tmp_path: Path, bucket: str) -> BucketBench:
        return BucketBench(tmp_path, bucket)
