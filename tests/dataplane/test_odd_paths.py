"""Folders and files of any name: the whole line, and readers that know nothing of rota."""

import json
import re
import shutil
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession

from rota.dataplane.delta.vacuum import vacuum
from rota.dataplane.files import file_index, files_source
from rota.dataplane.files.disk import DiskLanding
from rota.dataplane.names import key
from rota.dataplane.ports import ASSIGN
from rota.dataplane.spark import spark_server
from rota.dataplane.spark.spark_server import SparkServer, SparkSettings
from rota.demo import deltalog
from rota.errors import ConfigError, EnvironmentFailed
from rota.ledger.change import find_commit
from rota.local.storage import open_folder
from rota.people.rename import rename
from rota.run.consume import CommittedBatch, IdlePartition, ParkedPartition
from rota.run.replay import ReplayedRange, replay
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.landing_folders import open_files
from tests.dataplane.renamed_tables import count_each, count_rows, fill, tables
from tests.dataplane.stand_ins import no_spark
from tests.dataplane.world import BRIEF, World
from tests.waiting import wait_until

ODD = (
    " a b ü日本e\u0301",
    "100%a%zz%",
    "#?",
    "{y}{a,b",
    "[x]*[",
    "+&'\"",
    ":;=$~`<|>^!@",
)  # what delta-rs, Spark, URLs or shells read


LIMIT = "pipeline = Pipeline(source=source(max_files=1), table=delta({table!r}), max_bad_ratio=0.6)\n"


@pytest.mark.parametrize("odd", ODD)
def test_a_table_may_be_in_a_folder_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    """Without Spark: the index and its compaction, the commits and what they say, the vacuum, a rename."""
    monkeypatch.setattr(file_index, "MANY", 3)
    (tmp_path / odd).mkdir()
    world = World(tmp_path / odd)
    for name in ("0", "1"):
        fill(world, name, key=key(odd))
    main, index = tables(world).main, open_files(world.pipeline).index
    p = world.pipeline.partition(key(odd))
    assert main.read_log()[0].op == "commit"
    assert find_commit(main.log, main.read_log()[0].commit, 0) == main.read_log()[0]
    assert not main.find_foreign_commits([p])
    for name in "234":
        world.rows(odd, odd + name, 1)
        open_files(world.pipeline).observe((p,), ASSIGN)
    assert len(DeltaTable(world.table / "index").file_uris()) < 5, "put together"
    assert [f.path for f in index.files((p,))[p]] == [
        f"{odd}/{name}.json" for name in ("0", "1", *(odd + n for n in "234"))
    ]
    vacuum(str(world.table), dry_run=False)
    assert deltalog.read(open_folder(world.table / "main")).version == main.read_log()[0].version
    world.call("q")
    rename(world.tree, "p", world.pipeline)
    assert count_rows(world) == count_each(f"q:{key(odd)}", 2)
    assert len(DeltaTable(world.table / "main").to_pandas()) == 2
    append_as_another_program(world.table / "main")
    assert "(WRITE) changed rows" in tables(world).main.find_foreign_commits([p])[p]


def append_as_another_program(table: Path) -> None:
    """Not by write_deltalake: it panics in a folder with `[` or `^` in its name."""
    there = DeltaTable(table)
    file, *_ = pa.table(there.get_add_actions(flatten=True)).to_pylist()
    shutil.copy(table / unquote(file["path"]), table / "by-hand.parquet")
    add = AddAction("by-hand.parquet", file["size_bytes"], {}, 0, True, json.dumps({"numRecords": 1}))
    there.create_write_transaction([add], "append", there.schema(), partition_by=[])


@pytest.mark.parametrize("bad", ["a%20b", "a\\b", "a\nb", "\udce9"])
def test_a_name_that_delta_cannot_open_is_one_line(tmp_path: Path, bad: str) -> None:
    (tmp_path / bad).mkdir()
    world = World(tmp_path / bad)
    world.rows("a", "0", 1)
    world.give("a")
    with pytest.raises(ConfigError, match=r"^A Delta table cannot be in .* Give it another path$"):
        world.run("a", connect=no_spark)


ALL = "".join(ODD).replace(":", "")  # which Hadoop does not find beside what it takes for a pattern
SOME = " ü%#?{[*+&'\""  # an id is no longer than 128 letters
ASCII = " %41#?{[*+&'\";=$~`<|>^!@.\\__HIVE_DEFAULT_PARTITION__"


def test_the_whole_line_in_a_folder_of_every_letter(tmp_path: Path, endpoint: str, spark: SparkSession) -> None:
    """Consume, set aside, park, replay, vacuum, and again; then readers that know nothing of rota."""
    (tmp_path / ALL).mkdir()
    world = World(tmp_path / ALL, endpoint, spark=spark, text=LIMIT)
    a, p = key(SOME), f"p:{key(SOME)}"
    world.rows(SOME, f"{ALL}0", 3)
    world.land(SOME, f"{ALL}1", ['{"n": 1}', "bad"])
    world.give(a)
    events = world.until_idle(a)
    assert [type(e) for e in events] == [CommittedBatch, CommittedBatch, IdlePartition], events
    assert damage(world.table / "main", {p: {0: 3, 1: 1}}) == NO_DAMAGE
    (aside,) = log(world.table / "quarantine").rows()
    assert (aside["_file"], aside["_position"]) == (f"{SOME}/{ALL}1.json", 2)
    world.rows(SOME, f"{ALL}0", 5)
    (done,) = replay(world.tree, world.ports, {p: (0, 1)}, "again")
    assert isinstance(done, ReplayedRange), done
    vacuum(str(world.table), timedelta(days=7), dry_run=False)
    world.join("w2")
    world.give(a)
    world.rows(SOME, f"{ALL}2", 2)
    assert [type(e) for e in world.until_idle(a)] == [CommittedBatch, IdlePartition]
    assert damage(world.table / "main", {p: {0: 5, 1: 1, 2: 2}}) == NO_DAMAGE
    table = DeltaTable(world.table / "main")
    files = [unquote(uri) for uri in table.file_uris()]
    assert len(table.to_pandas()) == len(pd.concat(map(pd.read_parquet, files))) == 8
    literal = [re.sub(r"[][{}*?\\]", r"\\\g<0>", file) for file in files]
    assert spark.read.parquet(*literal).count() == 8


def test_lines_in_doubt_are_under_their_own_files(tmp_path: Path, endpoint: str, spark: SparkSession) -> None:
    """Spark lists the files once more, for their sizes."""
    world = World(tmp_path, endpoint, spark=spark)
    a, b = key(ASCII), key("é")
    world.give(a, b)
    world.land(ASCII, "1", ['{"n": 1},', '{"n": "x"}', *['{"n": 2}'] * 9])
    world.rows("é", "0", 2)
    events = world.run(a, b)
    assert {type(e) for e in events} == {CommittedBatch}
    assert sum(e.bad_rows for e in events if isinstance(e, CommittedBatch)) == 1
    assert damage(world.table / "main", {f"p:{a}": {0: 10}, f"p:{b}": {0: 2}}) == NO_DAMAGE
    assert [row["_partition"] for row in log(world.table / "quarantine").rows()] == [f"p:{a}"]


@pytest.mark.parametrize("odd", [SOME, ASCII])
def test_an_error_of_spark_names_the_landed_file(tmp_path: Path, endpoint: str, spark: SparkSession, odd: str) -> None:
    text = "pipeline = Pipeline(source=source(format='csv', options={'header': 'true'}), table=delta({table!r}))\n"
    (tmp_path / ALL).mkdir()
    world = World(tmp_path / ALL, endpoint, spark=spark, text=text)
    world.land(odd, "x", ["n,word,other", "1,a,b"], ".csv")
    world.give(key(odd))
    (event,) = world.run(key(odd))
    assert isinstance(event, ParkedPartition), event
    assert f"CSV header of {odd}/x.csv has the undeclared column 'other'" in event.reason


@pytest.mark.parametrize(("folder", "name"), [("{a:b}", "0"), ("a", "10:00[1]"), ("10:00", "0\\")])
@pytest.mark.parametrize("guarded", [True, False])
def test_a_path_in_which_hadoop_finds_no_colon_stops_its_partition_alone(
    guarded: bool, folder: str, name: str, landed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a character of a pattern; without the guard the reason has no next step."""
    if not guarded:
        monkeypatch.setattr(files_source, "explain_unlisted", lambda *_: "")
    landed.give(key(folder), "beside:")
    landed.rows(folder, name, 2)
    landed.rows("beside:", "10:00", 2)
    landed.until_idle(key(folder), "beside:")
    assert damage(landed.table / "main", {"p:beside:": {0: 2}}) == NO_DAMAGE
    ((p, parked),) = landed.tree.parked().items()
    assert p == f"p:{key(folder)}"
    said = f"{folder}/{name}.json has a colon in its whole path, and one of []{{}}*?\\: Hadoop finds no such path. Land it "
    assert parked.record.reason.startswith(said) == guarded, parked.record.reason


@pytest.mark.parametrize("guarded", [True, False])
def test_a_landing_folder_behind_a_link_and_back_is_the_one_of_the_system(
    guarded: bool, tmp_path: Path, endpoint: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop makes `/x` of `/x/link/..`."""
    (tmp_path / "disk/sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk/sub")
    if not guarded:
        monkeypatch.setattr(DiskLanding, "spark_place", property(lambda self: f"file://{self.root}"))
    world = World(tmp_path, endpoint, spark=spark, landing=f"{tmp_path}/link/../land")
    world.give("a")
    (tmp_path / "disk/land/a").mkdir(parents=True)
    (tmp_path / "disk/land/a/0.json").write_text('{"n": 1}\n')
    if guarded:
        assert [type(e) for e in world.run("a")] == [CommittedBatch]
    else:
        with pytest.raises(EnvironmentFailed, match="Spark does not see what landed"):
            world.run("a")


@pytest.mark.parametrize("guarded", [True, False])
def test_a_worker_in_the_locale_c_reads_names_beyond_ascii(
    guarded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    if not guarded:
        monkeypatch.setattr(spark_server, "choose_locale", lambda _: {})
    server = SparkServer("c", SparkSettings("local[1]", BRIEF), tmp_path / "spark")
    server.start()
    try:
        wait_until(server.ready)
        world = World(tmp_path, server.url)
        world.give(key("é"))
        world.rows("é", "日本", 2)
        if guarded:
            assert [type(e) for e in world.run(key("é"))] == [CommittedBatch]
        else:
            with pytest.raises(EnvironmentFailed, match="Spark does not see what landed"):
                world.run(key("é"))
    finally:
        server.stop()
