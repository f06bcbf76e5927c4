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

from rota.dataplane import columns
from rota.dataplane.delta.vacuum import vacuum
from rota.dataplane.files import file_index
from rota.dataplane.names import key
from rota.dataplane.ports import ASSIGN
from rota.demo import deltalog
from rota.errors import ConfigError
from rota.ledger.change import find_commit
from rota.local.storage import open_folder
from rota.people.rename import rename
from rota.run.consume import CommittedBatch, IdlePartition, ParkedPartition
from rota.run.replay import ReplayedRange, replay
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.landing_folders import open_files
from tests.dataplane.renamed_tables import count_each, count_rows, fill, tables
from tests.dataplane.stand_ins import no_spark
from tests.dataplane.world import World

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
ASCII = " %41#?{[*+&'\":;=$~`<|>^!@.\\__HIVE_DEFAULT_PARTITION__"


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


def test_spark_gives_ids_of_ascii_by_itself(
    tmp_path: Path, endpoint: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row costs no step that makes its id; beside one that is not of ASCII it does."""
    made: list[str] = []
    real = columns.restore_ids
    monkeypatch.setattr(columns, "restore_ids", lambda frame: made.append("") or real(frame))
    world = World(tmp_path, endpoint, spark=spark)
    world.give(key(ASCII), key("é"))
    world.rows(ASCII, "0", 3)
    world.land(ASCII, "1", ['{"n": 1},', '{"n": "x"}', *['{"n": 2}'] * 9])  # in doubt: Spark looks at the links, too
    (event,) = world.run(key(ASCII))
    assert isinstance(event, CommittedBatch), event
    assert (event.bad_rows, len(made)) == (1, 0)
    world.rows(ASCII, "2", 1)
    world.rows("é", "0", 2)
    assert {type(e) for e in world.run(key(ASCII), key("é"))} == {CommittedBatch}
    assert len(made) == 1
    assert damage(world.table / "main", {f"p:{key(ASCII)}": {0: 3, 1: 10, 2: 1}, f"p:{key('é')}": {0: 2}}) == NO_DAMAGE
    assert [row["_partition"] for row in log(world.table / "quarantine").rows()] == [f"p:{key(ASCII)}"]


@pytest.mark.parametrize("odd", [SOME, ASCII], ids=["as hex", "by Spark"])
def test_an_error_of_spark_names_the_landed_file(tmp_path: Path, endpoint: str, spark: SparkSession, odd: str) -> None:
    text = "pipeline = Pipeline(source=source(format='parquet'), table=delta({table!r}))\n"
    (tmp_path / ALL).mkdir()
    world = World(tmp_path / ALL, endpoint, spark=spark, text=text)
    world.land(odd, "x", ["no parquet"], ".parquet")
    world.give(key(odd))
    (event,) = world.run(key(odd))
    assert isinstance(event, ParkedPartition), event
    assert f"{odd}/x.parquet" in event.reason
    assert "stage" not in event.reason, event.reason
