"""A table in a container of Azure has the laws of every table, tested on Azurite: the suites of logs and tables, races,
odd names, a pipeline on real Spark, and no output of a credential."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from rota import stores
from rota.dataplane.spark.on_executors import make_writer
from rota.deltalog.delta_log import DeltaLog
from rota.errors import EnvironmentFailed
from rota.run.maintain import maintain
from rota.run.replay import replay
from tests.azurite import KEY, Azurite, serve_azurite
from tests.bucket import count_won, list_objects
from tests.dataplane.conformance.log_suite import LogSuite
from tests.dataplane.conformance.table_suite import TableSuite
from tests.dataplane.conftest import log
from tests.dataplane.delta_tables import DeltaBench
from tests.dataplane.racing_writers import Race
from tests.dataplane.world import World

KEYS = 40  # each raced for
ODD = ("a b", "100%", "%41", "ü", "u\u0308", "a+b", "a&b=c", "x=1", "日本", "it's")


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with serve_azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def container(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new container, which the environment of the test names."""
    for name, value in azurite.environ.items():
        monkeypatch.setenv(name, value)
    return azurite.make_container()


def copy(location: str, folder: Path) -> Path:
    """Copy the container to a disk."""
    for path in list_objects(stores.open_objects(location)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(stores.read(location, path))
    return folder


class AzureBench(DeltaBench):
    """A table in a container. Its rows are read from a copy."""

    def rows(self) -> list[tuple[str, int]]:
        copy(self.location, self.path)
        return super().rows()


# The push tier runs the same suites in a bucket: TestDeltaLogInABucket, TestDeltaTableInABucket.
@pytest.mark.release
class TestDeltaLogInAzure(LogSuite):
    @pytest.fixture
    def one(self, container: str) -> DeltaLog:  # type: ignore[override]
        return DeltaLog(f"{container}/main")


@pytest.mark.release
class TestTableInAzure(TableSuite):
    @pytest.fixture
    def place(self, container: str, tmp_path: Path) -> AzureBench:  # type: ignore[override]
        return AzureBench(tmp_path, container)


def test_the_tag_of_a_put_is_the_one_in_a_list(container: str) -> None:
    tag = stores.put_new(f"{container}/t", "x/1.json", b"first")
    assert stores.list_after(f"{container}/t", "x", "") == {"x/1.json": tag}


def test_of_racing_puts_of_one_key_one_wins(container: str) -> None:
    assert count_won(f"{container}/race", KEYS) == KEYS


@pytest.mark.release
def test_ten_writers_lose_and_double_nothing(container: str, tmp_path: Path) -> None:
    race = Race(f"{container}/main")
    race.run()
    race.check(copy(race.location, tmp_path / "main"))
    assert KEY not in str(race.errors)


def test_files_below_a_location_have_their_names_and_go_where_others_are_gone(container: str) -> None:
    location = f"{container}/t"
    files, objects = stores.open_files(location), stores.open_objects(location)
    for name in ODD:
        with files.open_output_stream(f"data/{name}/{name}.parquet") as out:
            out.write(name.encode())
    paths = [f"data/{name}/{name}.parquet" for name in ODD]
    found = files.get_file_info(fs.FileSelector("data", recursive=True))
    assert {one.path for one in found if one.type == fs.FileType.File} == set(paths)
    assert [stores.read(location, path) for path in paths] == [name.encode() for name in ODD]
    stores.delete(location, ["data/never/was", *paths[:-1], "data/never/was/either"])
    assert list(list_objects(objects)) == paths[-1:]
    stores.delete_folder(location, "data")
    assert not list_objects(objects)


@pytest.mark.parametrize("landed", ["disk"], indirect=True)
def test_a_pipeline_consumes_sets_aside_replays_and_is_maintained(
    landed: World, container: str, tmp_path: Path
) -> None:
    landed.text = f"pipeline = Pipeline(source=source(), table=delta('{container}/p'), max_bad_ratio=1.0)\n"
    landed.write(landed.text)
    landed.give("a", "ü b")
    for number in range(3):
        for key in ("a", "ü b"):
            landed.rows(key, str(number), 5)
            landed.run(key)
    landed.land("a", "bad", ['{"n": 1, "word": "x"}', '{"n": "no", "word": "x"}'])
    landed.run("a")
    landed.rows("a", "1", 7)
    assert list(replay(landed.tree, landed.ports, {"p:a": (1, 2)}, "again"))
    assert not maintain(landed.pipeline).failed
    tables = copy(f"{container}/p", tmp_path / "copy")
    found = Counter((row["_partition"], row["_offset"]) for row in log(tables / "main").rows())
    assert found == {("p:a", 0): 5, ("p:a", 1): 7, ("p:a", 2): 5, ("p:a", 3): 1} | {("p:ü b", n): 5 for n in range(3)}
    (bad,) = log(tables / "quarantine").rows()
    assert (bad["_raw"], bad["_position"]) == ('{"n": "no", "word": "x"}', 2)
    assert not list(tables.glob("quarantine/raw/*"))


def test_a_key_that_is_wrong_is_said_in_one_line_without_it(container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = KEY.replace("E", "F")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", wrong)
    with pytest.raises(EnvironmentFailed, match=r"cannot be read|is no table that can be read") as failed:
        DeltaLog(f"{container}/main").open()
    assert "\n" not in str(failed.value)
    assert wrong not in str(failed.value)


def test_a_task_without_a_key_fails_by_its_environment_and_not_by_its_data(
    container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow finds no credential, and its error is not an OSError: still no partition is parked."""
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    opened = partial(stores.open_executors_files, stores.describe_to_executors(container))
    place = container.partition("://")[2]
    write = make_writer(place, opened, {}, ["_partition", "n"], "_partition", str, None)
    with pytest.raises(OSError, match="Input/output error"):
        list(write([pa.record_batch({"c0": ["p:a"], "c1": [0]})]))
