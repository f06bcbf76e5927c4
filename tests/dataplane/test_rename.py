"""A table has one pipeline, by its log; a rename takes rows, offsets and tokens along, wherever it dies."""

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction
from pyspark.sql import SparkSession

from rota import rename as verb
from rota.adopt import adopt
from rota.backlog import read_lags
from rota.catalog import load
from rota.consume import CommittedBatch, IdlePartition
from rota.coordination.membership import end_run, register_run
from rota.coordination.memory import MemoryServer
from rota.coordination.overrides import pin
from rota.coordination.parking import park
from rota.dataplane.delta import renaming, replacement
from rota.dataplane.delta.fenced_table import FencedTable
from rota.dataplane.delta.identity import Identity
from rota.dataplane.files.file_index import FileIndex
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.ports import Batch, TableClaim
from rota.dataplane.spark import quarantine
from rota.errors import ConfigError, ForeignTable
from rota.ids import rename_id
from rota.rename import rename
from rota.replay import ReplayedRange, replay
from rota.skip import skip
from tests.dataplane.conftest import log
from tests.dataplane.delta_tables import batch
from tests.dataplane.renamed_tables import each, filled, rows, tables
from tests.dataplane.stand_ins import no_spark
from tests.dataplane.world import World


@pytest.fixture
def small(tmp_path: Path) -> World:
    return World(tmp_path)


# --- whose table -------------------------------------------------------------------------------------------------------


SAYS = (
    r"main is the table of pipeline 'p', and 'q' would read everything again .* take p.py away, then: rota rename p q"
)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_renamed_file_reads_nothing_again(small: World, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    filled(small, "0", "1")
    small.call("q")
    small.give("a")
    version = DeltaTable(small.table / "main").version()
    if not guarded:
        monkeypatch.setattr(Identity, "owns", Identity.group_has)
        filled(small)
        assert rows(small) == each("p:a", 2) + each("q:a", 2), "each file was read twice"
        return
    with pytest.raises(ForeignTable, match=SAYS):
        small.run("a", connect=no_spark)
    with pytest.raises(ForeignTable, match=SAYS):
        skip(small.tree, small.ports, "q:a")
    with pytest.raises(ForeignTable, match=SAYS):
        list(replay(small.tree, small.open_ports(connect=no_spark), {"q:a": (0, 1)}, "r"))
    for ledger in (tables(small).main, tables(small).quarantine):
        with pytest.raises(ForeignTable, match="is the table of pipeline 'p'"):
            ledger.claim({"q:a": 9}, {"q:a": 0})
        with pytest.raises(ForeignTable, match="is the table of pipeline 'p'"):
            ledger.adopt()
    with pytest.raises(ForeignTable, match=SAYS):
        adopt(small.tree, [small.pipeline])
    assert DeltaTable(small.table / "main").version() == version
    assert rows(small) == each("p:a", 2)


@pytest.mark.parametrize("consumed", [True, False], ids=["a table with rows", "the first batch"])
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_commit_that_was_claimed_before_the_rename_is_refused(
    small: World, monkeypatch: pytest.MonkeyPatch, guarded: bool, consumed: bool
) -> None:
    """Its rows would be read again under the new name. Where files of the table are removed Delta itself refuses it."""
    small.give("a")
    if consumed:
        filled(small, "0", "1")
    zombie = tables(small).main
    claimed = zombie.claim({"p:a": 99}, {"p:a": 0})
    late = batch(zombie, claimed)
    small.call("q")
    if not guarded:
        real = renaming._moves
        monkeypatch.setattr(renaming, "_moves", lambda of, stands: real(of, stands) if of.pipeline == "q" else [])
    rename(small.tree, "p", small.pipeline)
    refused = (
        pytest.raises(ForeignTable, match="is the table of pipeline 'q'") if guarded or consumed else nullcontext()
    )
    with refused:
        zombie.commit(claimed, late)
    assert rows(small) == each("q:a", 2 if consumed else 0) + (Counter() if guarded or consumed else each("p:a", 2))


@pytest.mark.parametrize("group", ["g", "h"])
def test_a_table_of_another_deployment_and_another_name_is_left_alone(small: World, group: str) -> None:
    """Two ZooKeepers, or two groups, and the advice as far as it goes."""
    filled(small, "0", "1")
    other = World(small.folder, server=MemoryServer(), group=group)
    other.call("q")
    other.give("a")
    line = "belongs to pipeline 'p' of another group, .* call the file p.py, then: rota adopt"
    with pytest.raises(ForeignTable, match=line):
        other.run("a", connect=no_spark)
    with pytest.raises(ForeignTable, match=line):
        adopt(other.tree, [other.pipeline])
    with pytest.raises(ForeignTable, match=r"belongs to another group.* rota adopt"):
        rename(other.tree, "p", other.pipeline)
    other.call("p")
    adopt(other.tree, [other.pipeline])
    other.call("q")
    rename(other.tree, "p", other.pipeline)
    other.give("a", incarnation=other.join("w2"))
    assert [type(e) for e in other.run("a", connect=no_spark)] == [IdlePartition]
    assert rows(small) == each("q:a", 2)


# --- the rename ---------------------------------------------------------------------------------------------------------


def settled(world: World, old: str, new: str, end: int) -> None:
    """Everything is the new name's, as it was the old one's; what lands next is read once."""
    assert rows(world) == each(f"{new}:a", end)
    assert rows(world, "quarantine") == each(f"{new}:a", end)
    counts, (made, *_) = (
        quarantine.make_counter(past := tables(world).main.read_log()),
        (p for p in past if p.op == "commit"),
    )
    assert counts(f"{new}:a", 0, made.attempt)
    assert read_lags(world.tree, world.ports.source, [f"{new}:a"]) == {f"{new}:a": (end, end)}
    assert world.tree.partitions().keys() == {new}
    assert world.tree.partitions()[new].keys == ("a",)
    assert world.tree.overrides().pins == {f"{new}:a": "w1"}
    assert world.tree.checkpoints().keys() == {f"{new}:a"}
    assert world.tree.checkpoints()[f"{new}:a"].record.run_id == "run"
    assert not world.tree.parked()
    world.give("a")
    assert world.run("a", connect=no_spark) == [
        IdlePartition(
            f"{new}:a", end, world.tree.owned((f"{new}:a",))[f"{new}:a"].token, world.tree.head().record.epoch
        )
    ]
    filled(world, "new")
    assert rows(world) == each(f"{new}:a", end + 1)


def prepared(world: World) -> None:
    filled(world, "0", "1")
    pin(world.tree, "p:a", "w1")
    world.call("q")
    world.give("a")  # the page was loaded anew: the group knows both names, and somebody owns the new one
    park(world.tree, "p:a", "mend p:a", offset=2)


def test_a_rename_takes_everything_along(small: World) -> None:
    prepared(small)
    assert rename(small.tree, "p", small.pipeline) == 1
    assert rename(small.tree, "p", small.pipeline) is None
    settled(small, "p", "q", 2)


@pytest.mark.parametrize("called", [("q", "p"), ("p-b", "p"), ("q", "z", "p")], ids="->".join)
def test_names_may_begin_like_others_and_come_back(small: World, called: tuple[str, ...]) -> None:
    filled(small, "0", "1")
    now = "p"
    for name in called:
        small.call(name)
        assert rename(small.tree, now, small.pipeline) == 1
        assert rows(small) == each(f"{name}:a", 2)
        past = tables(small).main.read_log()
        assert {p for one in past for p in (*one.ranges, *one.tokens)} == {f"{name}:a"}
        now = name
    pin(small.tree, "p:a", "w1")
    settled(small, "", "p", 2)


STEPS: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "before it is begun": (renaming, "begin_rename", lambda *_: True),
    "begun": (FileIndex, "rename", lambda *_: True),
    "the index is renamed": (renaming, "finish_rename", lambda ledger, *_: ledger.path.name == "quarantine"),
    "the quarantine is renamed": (renaming, "read_renamed_positions", lambda *_: True),
    "before the checkpoints": (verb.coordination, "rename_pipeline", lambda *_: True),
    "within the group's records": (verb.coordination, "_move_partitions", lambda *_: True),
    "before the pins": (verb.coordination, "repin", lambda *_: True),
    "before the old checkpoints go": (verb.coordination, "_gone", lambda *_: True),
    "the group's records are renamed": (renaming, "finish_rename", lambda ledger, *_: ledger.path.name == "main"),
    "a file of main is written": (FencedTable, "check_on_disk", lambda ledger, *_: ledger.path.name == "main"),
}


class Died(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("replied", [True, False], ids=["before the step", "after the step"])
@pytest.mark.parametrize("step", STEPS)
def test_a_rename_that_dies_is_typed_again(
    small: World, monkeypatch: pytest.MonkeyPatch, step: str, replied: bool
) -> None:
    prepared(small)
    owner_, name, when = STEPS[step]
    real = getattr(owner_, name)

    def dying(*args: Any, **more: Any) -> Any:
        if when(*args):
            if not replied:
                real(*args, **more)
            raise Died
        return real(*args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(owner_, name, dying)
        with pytest.raises(Died):
            rename(small.tree, "p", small.pipeline)
    over = step == "the group's records are renamed" and not replied
    if (step != "before it is begun" or not replied) and not over:
        for main in (tables(small).main, replace(tables(small).main, pipeline="p")):
            for touch in (lambda main: main.claim({"q:a": 99, "p:a": 99}, {"q:a": 0, "p:a": 0}), FencedTable.adopt):
                with pytest.raises(ForeignTable, match=r"between two names.* rota rename p q --group g"):
                    touch(main)
        with pytest.raises(ConfigError, match="Go on with: rota rename p q --group g"):
            rename(small.tree, "x", small.pipeline)
    assert rename(small.tree, "p", small.pipeline) == (None if over else 1)
    settled(small, "p", "q", 2)


# --- what is under way meanwhile ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_an_owner_of_before_the_rename_claims_anew(
    small: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The page was loaded anew and the new name claimed; then the worker that still had the old one came back, under a
    greater token, and consumed: the new name's owner would stand below it for good."""
    filled(small, "0")
    small.call("q")
    small.give("a")
    small.call("p")
    small.join("w2")
    filled(small, "1")
    small.call("q")
    if not guarded:
        monkeypatch.setattr("rota.coordination.rename.free", lambda *_: None)
    owned = small.tree.owned(("q:a",))["q:a"]
    rename(small.tree, "p", small.pipeline)
    if guarded:
        assert small.tree.owned(("q:a",))["q:a"].incarnation is None
        settled_owner = small.give("a")
        assert [type(e) for e in small.run("a", incarnation=settled_owner, connect=no_spark)] == [IdlePartition]
        return
    with pytest.raises(ForeignTable, match=r"above .* of its rightful owner"):
        small.run("a", incarnation=owned.incarnation, connect=no_spark)


def given(world: World) -> Counter[tuple[object, object]]:
    """The rows of the index, as its log and its files tell them."""
    return Counter((r["partition"], r["path"]) for r in log(world.table / "index").rows())


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_offsets_that_a_late_run_gave_under_the_old_name_are_gone_when_it_comes_back(
    small: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """A run that stood still between the table and the index gives all files offsets anew: nobody reads by them."""
    filled(small, "1")
    late = FilesSource.of(small.pipeline)
    filled(small, "0")
    small.call("q")
    if not guarded:

        def kept(index: FileIndex, table: DeltaTable, old: str, new: str) -> list[Any]:
            actions: list[Any] = []
            for said, file in index._read_named_files(table):
                rows = pq.read_table(file.path)
                ids = pa.array([rename_id(p, old, new) for p in rows["partition"].to_pylist()])
                actions += index._write_files(rows.set_column(0, rows.field(0), ids), change=True)
                actions.append(RemoveAction(said["path"], True, 0, size=said["size_bytes"]))
            return actions

        monkeypatch.setattr(FileIndex, "_rewrite_renamed", kept)
    rename(small.tree, "p", small.pipeline)
    late.assign_offsets(("p:a",))
    assert FilesSource.of(small.pipeline).locate("q:a", 0) == "a/1.json"
    small.call("p")
    rename(small.tree, "q", small.pipeline)
    assert given(small) == dict.fromkeys([("p:a", "a/0.json"), ("p:a", "a/1.json")], 1 if guarded else 2)
    assert FilesSource.of(small.pipeline).locate("p:a", 0) == "a/1.json" or not guarded


@pytest.mark.parametrize("again", [7, 8], ids=["guarded", "without the guard"])
def test_the_index_goes_over_once_for_each_rename(small: World, again: int) -> None:
    """What is not the old name's is dropped: the second time that would be all of it."""
    filled(small, "0", "1")
    for number in (7, again):
        FilesSource.of(small.pipeline).index.rename("p", "q", number)
    assert len(given(small)) == (2 if again == 7 else 0)


def test_a_compaction_beside_a_rename_loses_nothing(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's OPTIMIZE moves the rows while they are written anew: it looks again."""
    filled(small, "0")
    filled(small, "1")
    small.call("q")
    real, times = FencedTable.check_on_disk, [2]

    def meanwhile(ledger: FencedTable, files: Any) -> None:
        real(ledger, files)
        if times[0]:
            times[0] -= 1
            DeltaTable(ledger.path).optimize.compact()

    monkeypatch.setattr(FencedTable, "check_on_disk", meanwhile)
    assert rename(small.tree, "p", small.pipeline) == 1
    assert (rows(small), rows(small, "quarantine")) == (each("q:a", 2), each("q:a", 2))


def test_a_rename_hides_no_rows_that_somebody_took(small: World) -> None:
    filled(small, "0")
    filled(small, "1")
    DeltaTable(small.table / "main").delete("_offset = 0")
    small.call("q")
    rename(small.tree, "p", small.pipeline)
    small.give("a")
    assert "(DELETE) changed rows" in tables(small).main.find_foreign_commits(["q:a"])["q:a"]
    with pytest.raises(ForeignTable, match="DELETE"):
        tables(small).main.claim({"q:a": 1 << 40}, {"q:a": 0})
    adopt(small.tree, [small.pipeline])
    assert not tables(small).main.find_foreign_commits(["q:a"])


def test_a_log_that_was_shortened_loses_no_offset(small: World) -> None:
    """Its partitions are those that the group knows."""
    filled(small, "0")
    filled(small, "1")
    small.call("q")
    DeltaTable(small.table / "main").optimize.compact()
    for version in sorted((small.table / "main" / "_delta_log").glob("*.json"))[:-1]:
        DeltaTable(small.table / "main").create_checkpoint()
        version.unlink()
    with pytest.raises(ForeignTable, match="is the table of pipeline"):
        adopt(small.tree, [small.pipeline])
    assert rename(small.tree, "p", small.pipeline) == 1
    assert tables(small).main.read_positions(("q:a",))["q:a"].offset == 2


def test_a_replay_after_a_rename_replaces_the_rows_of_before(small: World) -> None:
    filled(small, "0", "1")
    small.call("q")
    rename(small.tree, "p", small.pipeline)
    main = tables(small).main
    replacement.replace_rows(main, batch(main, TableClaim(None, 0, "", "", {}, {"q:a": 0}, {}), ends={"q:a": 1}))
    assert rows(small) == each("q:a", 2)


# --- what it refuses ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_renamed_is_one_line_and_nothing_is_written(small: World) -> None:
    small.call("q")
    with pytest.raises(ConfigError, match="There is no table at"):
        rename(small.tree, "p", small.pipeline)
    small.call("p")
    filled(small, "0", "1")
    with pytest.raises(ConfigError, match="'p' is its name already"):
        rename(small.tree, "p", small.pipeline)
    with pytest.raises(ConfigError, match="is the table of pipeline 'p', not of 'x'"):
        rename(small.tree, "x", small.pipeline)
    version = DeltaTable(small.table / "main").version()
    small.call("q")
    with pytest.raises(ConfigError, match="is the table of pipeline 'p', not of 'x'"):
        rename(small.tree, "x", small.pipeline)
    node = register_run(small.tree, "r", small.incarnation, ["p:a"])
    with pytest.raises(ConfigError, match="Run r consumes p:a"):
        rename(small.tree, "p", small.pipeline)
    end_run(small.tree, node)
    small.call("q" * 127)
    with pytest.raises(ConfigError, match="Bad partition id"):
        rename(small.tree, "p", small.pipeline)
    assert DeltaTable(small.table / "main").version() == version


# --- which file is served -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", ["a", "z"])
def test_of_two_files_with_one_table_the_one_that_has_it_goes_on(
    small: World, monkeypatch: pytest.MonkeyPatch, copy: str
) -> None:
    pipelines = small.folder / "pipelines"
    shutil.copy(pipelines / "p.py", pipelines / f"{copy}.py")
    assert list(load(pipelines).pipelines) == [min("p", copy)], "there is no table yet: the first by name"
    filled(small, "0")
    catalog = load(pipelines)
    assert list(catalog.pipelines) == ["p"]
    assert catalog.refused[f"{copy}.py"].endswith(
        f"is the one of pipeline 'p'. Give '{copy}' another path; or, if it is 'p' under a new name, take p.py away, then: "
        f"rota rename p {copy}"
    )
    with monkeypatch.context() as patched:
        patched.setattr("rota.registry.find_owner", lambda *_: None)
        assert list(load(pipelines).pipelines) == [min("p", copy)], "the one that has it would be gone from the page"
    newest = max((small.table / "main" / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:50])
    catalog = load(pipelines)
    assert not catalog.pipelines
    assert "nobody can tell whose it is" in catalog.refused["p.py"]
    shutil.rmtree(small.table)
    assert list(load(pipelines).pipelines) == [min("p", copy)]


TYPES = """
def transform(df):
    return df.selectExpr(
        "*", "cast(n as decimal(20,3)) d", "cast(word as binary) b", "map(word, n) m", "array(struct(n, word)) s", "null x",
        "timestamp_micros(n - 3) t", "to_timestamp_ntz('0001-01-01 00:00:00.000001') z", "date'1582-10-14' old",
        "cast('NaN' as double) f", "cast(n as tinyint) y",
    ).drop("x")
pipeline = Pipeline(source=source(max_files=1), table=delta({table!r}), transform=transform, max_bad_ratio=0.9)
"""


def test_the_whole_line_goes_on_under_the_new_name(tmp_path: Path, endpoint: str, spark: SparkSession) -> None:
    """Real batches of every type: the same rows after it, a replay of an old range, the bad record, what lands next."""
    world = World(tmp_path, endpoint, spark=spark, text=TYPES)
    world.rows("a", "0", 3)
    world.land("a", "1", ['{"n": 7, "word": "x"}', "bad"])
    world.give("a")
    world.until_idle("a")

    def seen() -> list[tuple[Any, ...]]:
        files = [str(world.table / "main" / f) for f in log(world.table / "main").files]
        frame = spark.read.parquet(*files).drop("_partition")
        return sorted((tuple(row) for row in frame.collect()), key=str)

    before = seen()
    world.call("q")
    rename(world.tree, "p", world.pipeline)
    assert str(seen()) == str(before)
    world.join("w2")
    world.give("a")
    assert [type(e) for e in world.run("a")] == [IdlePartition]
    (done,) = replay(world.tree, world.ports, {"q:a": (0, 2)}, "again")
    assert isinstance(done, ReplayedRange), done
    assert str(seen()) == str(before)
    (bad,) = (
        r
        for r in log(world.table / "quarantine").rows()
        if quarantine.make_counter(tables(world).main.read_log())(r["_partition"], r["_offset"], r["_attempt"])
    )
    assert (bad["_partition"], bad["_raw"]) == ("q:a", "bad")
    world.rows("a", "2", 2)
    assert [type(e) for e in world.until_idle("a")] == [CommittedBatch, IdlePartition]
    assert rows(world) == {("q:a", 0): 3, ("q:a", 1): 1, ("q:a", 2): 2}


def test_bad_records_of_a_late_replay_do_not_keep_the_table_of_them_from_the_new_name(small: World) -> None:
    """The first bad records of the pipeline come from a replay that the rename overtook: no run node tells of it. The table
    for them was made for the old name, and every batch of the new one with a bad record failed, for ever."""
    small.give("a")
    small.rows("a", "0", 1)
    (end,) = FilesSource.of(small.pipeline).assign_offsets(("p:a",)).values()
    main, late = tables(small).main, tables(small).quarantine
    claimed = main.claim({"p:a": 9}, {"p:a": 0})
    main.commit(claimed, batch(main, claimed, ends={"p:a": end}))
    small.call("q")
    rename(small.tree, "p", small.pipeline)
    with pytest.raises(ForeignTable, match="is the table of pipeline 'q'"):
        replacement.append_rows(late, Batch("late", "", "", "late", 0, {"p:a": (0, 1)}))
    aside = tables(small).quarantine
    assert aside.claim({"q:a": 9}, {"q:a": 0}).tokens == {"q:a": 9}
