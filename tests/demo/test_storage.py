"""Where a stack's data is: flights land in a bucket as on a disk, and the verifier finds there what is wrong."""

import shutil
import sys
from pathlib import Path

import pytest
from pyarrow import fs

from rota.demo.verify import Verdict, verify
from rota.errors import ConfigError
from rota.local.bucket import PROGRAM, BucketServer
from rota.local.flights import FlightsFolder, NewFiles
from rota.local.folder import StateFolder
from rota.local.stack import Stack
from rota.local.storage import open_below, open_folder, store_in_bucket
from tests.demo.made_table import Made


def list_files(folder: fs.FileSystem) -> list[str]:
    found = folder.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
    return sorted(one.path for one in found if one.is_file)


def test_flights_land_in_a_bucket_as_in_a_folder(bucket_server: BucketServer) -> None:
    storage = store_in_bucket(bucket_server)
    folder = storage.open(f"{storage.landing}/flights")
    landing = FlightsFolder(folder).prepare()
    assert all("/." in path for path in list_files(folder)), "prepared, nothing visible"
    january = landing.land([1], ["AS", "HA"])
    assert january.files == ("AS/2013-01.csv", "HA/2013-01.csv")
    assert set(january.files) <= set(list_files(folder))
    assert landing.land([1], ["AS", "HA"]) == NewFiles((), 0)


@pytest.fixture(scope="module")
def copied(bucket_server: BucketServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Made, fs.FileSystem]:
    """A sound table and what landed for it, on a disk and in a bucket."""
    made, storage = Made(tmp_path_factory.mktemp("sound")), store_in_bucket(bucket_server)
    files = storage.open(storage.landing.removesuffix("/landing"))
    for name, folder in (("landing", made.landing), ("table", made.table)):
        fs.copy_files(".", name, source_filesystem=open_folder(folder), destination_filesystem=files)
    return made, files


def judge(files: fs.FileSystem) -> Verdict:
    return verify(open_below(files, "landing"), open_below(files, "table"), "flights")


def test_a_table_in_a_bucket_has_the_verdict_that_it_has_on_a_disk(copied: tuple[Made, fs.FileSystem]) -> None:
    made, files = copied
    verdict = judge(files)
    assert verdict == made.verdict()
    assert verdict.right


def test_an_object_that_is_lost_or_too_many_is_found(copied: tuple[Made, fs.FileSystem]) -> None:
    _, files = copied
    path = next(path for path in list_files(files) if path.startswith("table/main/data/"))
    files.move(path, f"{path}.parquet")
    verdict = judge(files)
    assert (verdict.right, verdict.unreadable, verdict.orphans) == (False, 1, 1)
    assert verdict.missing > 0
    files.move(f"{path}.parquet", path)
    assert judge(files).right


def test_what_a_bucket_takes_and_is_not_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Stack(StateFolder(tmp_path / "state")) as stack:
        monkeypatch.setattr("rota.local.stack.list_jars", tuple)
        with pytest.raises(ConfigError, match=r"no jars to read a bucket\. Type: rota prepare --s3"):
            stack.start_bucket()
        monkeypatch.setattr("rota.local.stack.list_jars", lambda: (Path("one.jar"),))
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        monkeypatch.setattr(shutil, "which", lambda _: None)
        with pytest.raises(ConfigError, match=rf"{PROGRAM}, a server of S3, is not installed\. .*: make tools"):
            stack.start_bucket()


def test_a_stack_whose_data_is_in_a_bucket_speaks_to_that_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.local.stack.list_jars", lambda: (Path("one.jar"),))
    with Stack(StateFolder(tmp_path / "state"), {"AWS_PROFILE": "theirs"}) as stack:
        assert stack.env["ROTA_TABLES"] == str(stack.state.tables.resolve())
        server = stack.start_bucket()
        (bucket,) = (path.name for path in server.data.iterdir())
        assert stack.env["ROTA_LANDING"] == f"s3://{bucket}/landing"
        assert stack.env["ROTA_TABLES"] == f"s3://{bucket}/tables"
        assert "AWS_PROFILE" not in stack.env
        assert stack.env["AWS_ENDPOINT_URL"] == server.endpoint
        with stack.open_tables("t").open_output_stream("one") as file:
            file.write(b"1")
        assert [path.name for path in server.data.glob("*/tables/t/*")] == ["one"]
