"""Landing folders keep what every source promises."""

from pathlib import Path

from rota.dataplane.ports import Ports
from rota.pipeline import Pipeline, delta, files
from rota.registry import open_ports
from tests.dataplane.conformance.source_suite import (
    AssigningSuite,
    ChangingSuite,
    NamingSuite,
    RememberingSuite,
    ReplayingSuite,
    SharingSuite,
    SourceSuite,
    StartingSuite,
)


class FilesBench:
    """A landing folder; a file is one offset."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.landed = folder, 0

    def open(self, start: str | int = "earliest", most: int = 1000) -> Ports:
        source = files(
            str(self.folder / "land"), format="json", schema="n int", settle=0.0, start=start, max_files=most
        )
        return open_ports(Pipeline(source, delta(str(self.folder / "table")), name="p"), "g", "0" * 32)

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

    def _file(self, partition: str, offset: int) -> Path:
        return self.folder / "land" / self.open().source.locate(partition, offset)


class TestFilesSource(
    SourceSuite,
    SharingSuite,
    AssigningSuite,
    StartingSuite,
    RememberingSuite,
    NamingSuite,
    ReplayingSuite,
    ChangingSuite,
):
    bench = FilesBench
