"""Both ways of opening a location read the same, on a disk and in a bucket; in the tests' server one writer wins."""

from pathlib import Path

import obstore
import pytest
from obstore.exceptions import BaseError
from pyarrow import fs

from rota import stores
from rota.deltalog.delta_log import DeltaLog
from rota.errors import RotaError
from rota.local.bucket import BucketServer, serve_buckets
from tests.bucket import count_won, list_objects
from tests.dataplane.conformance.log_suite import append

KEYS = 40  # each raced for
ODD = ("a b", "100%", "%41", "ü", "u\u0308", "a+b", "a&b=c", "x=1", "日本", "it's")


@pytest.fixture(params=["disk", "bucket"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return str(tmp_path / "t")
    return f"{request.getfixturevalue('bucket')}/t"


def test_files_below_a_location_have_their_names_below_it(location: str) -> None:
    files = stores.open_files(location)
    for name in ODD:
        stores.make_folder(location, f"data/{name}")
        with files.open_output_stream(f"data/{name}/{name}.parquet") as out:
            out.write(name.encode())
    found = files.get_file_info(fs.FileSelector("data", recursive=True))
    assert {one.path for one in found if one.type == fs.FileType.File} == {f"data/{n}/{n}.parquet" for n in ODD}
    for name in ODD:
        with files.open_input_file(f"data/{name}/{name}.parquet") as file:
            assert file.readall() == name.encode()
    stores.delete(location, [*(f"data/{n}/{n}.parquet" for n in ODD), "data/never/was"])
    found = files.get_file_info(fs.FileSelector("data", recursive=True, allow_not_found=True))
    assert not [one.path for one in found if one.type == fs.FileType.File]


def test_objects_are_the_files(bucket: str) -> None:
    location = f"{bucket}/deep/t"
    with stores.open_files(location).open_output_stream("data/x") as out:
        out.write(b"12345")
    stores.make_folder(location, "data/y")
    assert list_objects(stores.open_objects(location)) == {"data/x": 5}


def test_of_racing_puts_of_one_key_one_wins(bucket: str) -> None:
    assert count_won(f"{bucket}/race", KEYS) == KEYS


def test_a_file_is_put_once_and_its_tag_is_the_one_that_is_seen(location: str) -> None:
    stores.make_folder(location, "x")
    tag = stores.put_new(location, "x/1.json", b"first")
    assert stores.put_new(location, "x/1.json", b"second") is None
    assert stores.read(location, "x/1.json") == b"first"
    there = (
        stores.tag_file(f"{location}/x/1.json")
        if location[0] == "/"
        else stores.list_after(location, "x", "")["x/1.json"]
    )
    assert tag == there
    assert [one.path for one in stores.open_files(location).get_file_info(fs.FileSelector("x"))] == ["x/1.json"]


def test_requests_are_counted(bucket: str, bucket_server: BucketServer) -> None:
    before = bucket_server.count_requests()
    obstore.put(stores.open_objects(f"{bucket}/n"), "x", b"1")
    assert bucket_server.count_requests() == before + 1, bucket_server.list_requests(before)


def test_a_client_is_another_one_where_the_environment_names_another_store(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers with equally named buckets, each with its own object and table."""
    location = f"{bucket}/t"
    see = {
        "objects": lambda: bytes(stores.open_objects(location).get("x").bytes()),
        "files": lambda: stores.open_files(location).open_input_file("x").readall(),
        "table": lambda: table.transaction("x") if (table := DeltaLog(location).open()) else None,
    }

    def make(number: int) -> None:
        stores.open_objects(location).put("x", str(number).encode())
        for _ in range(number):
            append(DeltaLog(location), sets={"x": number})

    make(1)
    seen = [{name: look() for name, look in see.items()}]
    with serve_buckets(tmp_path / "other") as other:
        (other.data / bucket.removeprefix("s3://")).mkdir()
        with monkeypatch.context() as patched:
            patched.setenv("AWS_ENDPOINT_URL", other.endpoint)
            make(2)
            seen.append({name: look() for name, look in see.items()})
            patched.setenv("AWS_SECRET_ACCESS_KEY", "another-secret-key")
            for look in see.values():
                with pytest.raises((OSError, RotaError, BaseError)):
                    look()
        seen.append({name: look() for name, look in see.items()})
    said = [{"objects": f"{n}".encode(), "files": f"{n}".encode(), "table": n} for n in (1, 2, 1)]
    assert seen == said


def test_a_server_is_there_over_a_folder_beside_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make demo STORE=s3` names its state folder so."""
    monkeypatch.chdir(tmp_path)
    with serve_buckets(Path("state")) as server:
        assert not list(server.open(f"s3://{server.make_bucket()}").get_file_info(fs.FileSelector("")))
        assert server.count_requests() > 0
