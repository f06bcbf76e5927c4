"""A run from own record to checkpoint, on a real Spark server and real tables."""

import json
import shutil
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rota.coordination.checkpoint import Entry, write_checkpoints
from rota.coordination.group_state import GroupState
from rota.errors import EnvironmentFailed, ForeignTable
from rota.machine import free_port
from rota.run.consume import CommittedBatch, DroppedPartition, IdlePartition
from rota.run.work import find_work, read_owners
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.world import World


def words(world: World) -> Counter[str]:
    return Counter(str(r["word"]) for r in log(world.table / "main").rows())


def test_what_lands_is_consumed_once(world: World) -> None:
    for key, files in (("carrier=AA", 3), ("b", 1)):
        for i in range(files):
            world.rows(key, str(i), 10)
    assert world.ports.source.list_keys() == ("b", "carrier=AA")
    world.give("carrier=AA", "b")
    (work,) = find_work(world.tree, world.pipeline, world.ports.source)
    assert (work.worker, work.lags) == ("w1", {"p:b": (0, 1), "p:carrier=AA": (0, 3)})
    events = world.run("carrier=AA", "b")
    assert all(isinstance(e, CommittedBatch) for e in events), events
    reported = {e.partition: (e.start, e.end, e.rows, e.lag, e.bad_rows) for e in events}
    assert reported == {"p:carrier=AA": (0, 3, 30, 0, 0), "p:b": (0, 1, 10, 0, 0)}
    assert not find_work(world.tree, world.pipeline, world.ports.source)
    assert {type(e) for e in world.run("carrier=AA", "b")} == {IdlePartition}
    world.rows("b", "later", 5)
    (event, _) = sorted(world.run("carrier=AA", "b"), key=lambda e: e.partition)
    assert (event.start, event.end, event.rows) == (1, 2, 5)
    assert damage(world.table / "main", {"p:carrier=AA": {0: 10, 1: 10, 2: 10}, "p:b": {0: 10, 1: 5}}) == NO_DAMAGE
    checkpoints = world.tree.checkpoints()
    found = {p: (c.record.offset, c.record.rows) for p, c in checkpoints.items()}
    assert found == {"p:carrier=AA": (3, 30), "p:b": (2, 5)}
    assert not (world.table / "stage").exists()
    assert {file.suffix for file in (world.table / "main/data").rglob("*") if file.is_file()} == {".parquet"}
    assert not world.tree.runs()


# --- what it may work on --------------------------------------------------------------------------------------------


def test_only_what_the_incarnation_owns_and_should_hold(world: World) -> None:
    for key in "abcd":
        world.rows(key, "0", 1)
    world.give("a", "b", "c", incarnation=world.join("w2"))
    world.give("a", "b", incarnation=world.join("w1"))
    world.give("a")  # b is on its way to another worker
    world.tree.grow("p", ("d",))
    found = read_owners(world.tree, world.pipeline, ["p:a", "p:b", "p:c", "p:d", "p:none"])
    assert [ps for i, ps in found.by_incarnation.items() if i.startswith("w1@")] == [("p:a",)]
    assert found.skipped["p:b"] == "the target of w1 does not name it"
    assert found.skipped["p:d"] == "no worker owns it"
    events = world.run(*"abcd")
    dropped = {e.partition: e.reason for e in events if isinstance(e, DroppedPartition)}
    assert set(dropped) == {"p:b", "p:c", "p:d"}
    assert "does not name it" in dropped["p:b"]
    assert "w2@" in dropped["p:c"]
    assert [e.partition for e in events if isinstance(e, CommittedBatch)] == ["p:a"]


def test_a_run_for_a_life_that_is_over_touches_nothing(world: World) -> None:
    tree = GroupState(world.server.connect(), "g")
    world.give("a", incarnation=world.join("w1", tree))
    world.rows("a", "0", 1)
    tree.store.close()
    assert [e.reason for e in world.run("a")] == [f"its owner {world.incarnation} is gone"]
    assert not world.table.exists()


def test_of_two_runs_the_elder_works(world: World) -> None:
    from rota.coordination.membership import register_run

    world.give("a", "b")
    world.rows("a", "0", 1)
    world.rows("b", "0", 1)
    register_run(GroupState(world.server.connect(), "g"), "elder", world.incarnation, ["p:a"])
    kinds = {e.partition: e for e in world.run("a", "b")}
    assert kinds["p:a"] == DroppedPartition("p:a", "run elder works on it")
    assert isinstance(kinds["p:b"], CommittedBatch)


# --- where it starts, how much it takes -----------------------------------------------------------------------------


def test_a_batch_is_capped_and_the_rest_is_lag(world: World) -> None:
    world.write("pipeline = Pipeline(source=source(max_files=2), table=delta({table!r}))\n")
    for i in range(5):
        world.rows("a", str(i), 1)
    world.give("a")
    committed = [e for e in world.until_idle("a") if isinstance(e, CommittedBatch)]
    assert [(e.start, e.end, e.lag) for e in committed] == [(0, 2, 3), (2, 4, 1), (4, 5, 0)]


@pytest.mark.parametrize(("start", "rows"), [("latest", 1), (1, 3), (0, 4)])
def test_where_a_partition_starts_is_written_down_at_the_first_observation(
    world: World, start: object, rows: int
) -> None:
    world.write(f"pipeline = Pipeline(source=source(start={start!r}), table=delta({{table!r}}))\n")
    world.rows("a", "0", 1)
    world.rows("a", "1", 2)
    world.rows("a", "2", 0)
    world.give("a")
    if start == "latest":
        assert [w.lags for w in find_work(world.tree, world.pipeline, world.ports.source)] == [
            {"p:a": (0, 3)}
        ]  # before the first observation
        assert [type(e) for e in world.run("a")] == [IdlePartition]
        assert not find_work(world.tree, world.pipeline, world.ports.source)
    world.rows("a", "3", 1)
    world.until_idle("a")
    assert sum(words(world).values()) == rows


def test_latest_skips_what_is_there_at_first_and_nothing_of_a_folder_that_appears_later(world: World) -> None:
    """The first files of each new folder were skipped, by any producer and at any time."""
    world.write("pipeline = Pipeline(source=source(start='latest'), table=delta({table!r}))\n")
    for key in "ab":
        world.rows(key, "0", 4)
    world.give("a")
    assert [type(e) for e in world.run("a")] == [IdlePartition]
    world.rows("c", "0", 2)  # appears before any run of b
    world.give("a", "b", "c")
    world.rows("b", "1", 1)
    world.until_idle("a", "b", "c")
    assert sorted((r["_partition"], r["_offset"]) for r in log(world.table / "main").rows()) == [
        ("p:b", 1),
        ("p:c", 0),
        ("p:c", 0),
    ]


# --- healing and fencing --------------------------------------------------------------------------------------------


def test_a_batch_that_no_run_could_report_is_reported_by_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.give("a", "b")
    for key in "ab":
        world.rows(key, "0", 3)
    world.run("a")

    def lost(tree: GroupState, run: str, entries: list[Entry]) -> dict[str, None]:
        tree.store.close()
        return write_checkpoints(tree, run, entries)

    world.rows("a", "1", 4)
    with monkeypatch.context() as patch:
        patch.setattr("rota.run.consume.write_checkpoints", lost)
        reported = world.run("a", "b")
    assert {p: c.record.offset for p, c in world.tree.checkpoints().items()} == {"p:a": 1}
    events = world.run("a", "b")
    healed = {e.partition: e for e in events if isinstance(e, CommittedBatch)}
    assert {p: (e.start, e.end, e.rows, e.healed) for p, e in healed.items()} == {
        "p:a": (1, 2, 4, True), "p:b": (0, 1, 3, True),
    }  # fmt: skip
    assert {e.commit_id for e in reported if isinstance(e, CommittedBatch)} == {e.commit_id for e in healed.values()}
    assert {p: c.record.offset for p, c in world.tree.checkpoints().items()} == {"p:a": 2, "p:b": 1}
    assert [type(e) for e in world.run("a", "b")] == [IdlePartition, IdlePartition]


def overtaken(world: World, *keys: str) -> None:
    """From now on the transform of a run of w1 hands `keys` to w2, which consumes them, before the job of w1 is written."""
    plain, own = world.pipeline, world.incarnation

    def transform(frame: object) -> object:
        world.pipeline = plain
        world.give(*keys, incarnation=world.join("w2"))
        world.run(*keys)
        world.incarnation = own
        return frame

    world.pipeline = replace(plain, transform=transform)


def test_a_zombie_writes_nothing_and_its_other_partitions_go_in(world: World) -> None:
    world.give("a", "b", "c")
    for key in "abc":
        world.rows(key, "0", 2)
    overtaken(world, "a", "b")
    events = world.run("a", "b", "c")
    assert {e.partition: type(e) for e in events} == {
        "p:a": DroppedPartition,
        "p:b": DroppedPartition,
        "p:c": CommittedBatch,
    }
    assert damage(world.table / "main", {f"p:{k}": {0: 2} for k in "abc"}) == NO_DAMAGE
    refused = {r.partition: r for r in world.tree.refusals().ring}
    assert set(refused) == {"p:a", "p:b"}
    assert all(r.token < r.newer and r.run_id == "run1" for r in refused.values())


def test_a_run_that_was_overtaken_before_it_claimed_drops(world: World) -> None:
    """The token in the table is newer and the own record is no longer its: another run continues."""
    world.give("a")
    world.rows("a", "0", 2)
    first, zombie = world.incarnation, world.tree.owned(("p:a",))["p:a"]
    world.give("a", incarnation=world.join("w2"))
    world.run("a")
    from rota.dataplane.delta.tables import PipelineTables
    from rota.run.eligibility import read_rights

    held = read_rights(world.tree, world.incarnation, "/none@0", ["p:a"]).held["p:a"]
    tables = PipelineTables.of(world.pipeline, "g", world.tree.meta().id)
    assert tables.main.claim({"p:a": zombie.token}, {"p:a": 0}).newer == {"p:a": held.token}
    assert [e.reason for e in world.run("a", incarnation=first)] == [f"{world.incarnation} owns it"]


def test_a_restored_zookeeper_is_stopped_before_anything_is_written(world: World, tmp_path: Path) -> None:
    for _ in range(3):
        world.give("a", incarnation=world.join("w2"))
    world.give("a", incarnation=world.join("w1"))
    world.rows("a", "0", 1)
    world.run("a")
    restored = World(tmp_path, world.endpoint, spark=world.spark)
    meta = restored.tree.paths.meta
    restored.tree.store.set(meta, world.tree.store.get(meta).data, -1)  # the same group, an earlier state of it
    restored.give("a")
    restored.rows("a", "1", 1)
    with pytest.raises(ForeignTable, match="ZooKeeper was restored"):
        restored.run("a")
    other = World(tmp_path, world.endpoint, spark=world.spark)
    other.give("a")
    with pytest.raises(ForeignTable, match="belongs to another group"):
        other.run("a")
    assert len(log(world.table / "main").said("claim")) == 1


def test_adopt_goes_on_where_the_tables_stand(world: World, tmp_path: Path) -> None:
    from rota.people.adopt import adopt

    world.give("a")
    world.rows("a", "0", 2)
    world.run("a")
    other = World(tmp_path, world.endpoint, spark=world.spark)
    other.give("a")
    adopted = adopt(other.tree, [other.pipeline])
    assert adopted.offsets == {"p:a": 1}
    other.rows("a", "1", 3)
    assert [(e.start, e.end) for e in other.run("a") if isinstance(e, CommittedBatch)] == [(1, 2)]
    with pytest.raises(ForeignTable):
        world.run("a")
    assert damage(world.table / "main", {"p:a": {0: 2, 1: 3}}) == NO_DAMAGE


def test_an_older_table_parks_its_partitions(world: World) -> None:
    world.give("a")
    world.rows("a", "0", 1)
    world.run("a")
    shutil.copytree(world.table, world.folder / "backup")
    world.rows("a", "1", 1)
    world.run("a")
    shutil.rmtree(world.table)
    shutil.copytree(world.folder / "backup", world.table)
    (parked,) = world.run("a")
    assert "an older table was restored" in parked.reason
    assert not find_work(world.tree, world.pipeline, world.ports.source)


def test_a_dropped_table_is_made_anew_once_it_is_adopted(world: World) -> None:
    from rota.people.adopt import adopt, gone

    world.give("a")
    for name in "01":
        world.rows("a", name, 1)
    world.run("a")
    assert gone(world.tree, world.pipeline) == ()
    shutil.rmtree(world.table)
    with pytest.raises(EnvironmentFailed, match=r"Nothing was written\. Is its disk mounted.*rota adopt"):
        world.run("a")
    assert not world.table.exists()
    assert not world.tree.parked()
    assert gone(world.tree, world.pipeline) == ("p:a",)
    assert adopt(world.tree, [world.pipeline]).anew == ("p:a",)
    assert [(e.start, e.end) for e in world.run("a") if isinstance(e, CommittedBatch)] == [(0, 2)]
    assert damage(world.table / "main", {"p:a": {0: 1, 1: 1}}) == NO_DAMAGE


# --- the environment ------------------------------------------------------------------------------------------------


def test_a_spark_that_is_gone_ends_the_run_in_seconds_and_parks_no_partition(world: World) -> None:

    from rota.dataplane.spark import session

    world.give("a")
    world.rows("a", "0", 1)
    with pytest.warns(UserWarning, match="RETRIES_EXCEEDED"), pytest.raises(EnvironmentFailed, match="Spark"):
        world.run("a", connect=lambda _: session.open_session(f"sc://127.0.0.1:{free_port()}"))
    assert not world.tree.parked()
    assert [type(e) for e in world.run("a")] == [CommittedBatch]


def test_an_endpoint_without_an_answer_is_one_line_at_once(world: World) -> None:
    world.endpoint = f"sc://127.0.0.1:{free_port()}"
    world.give("a", incarnation=world.join("w9"))
    world.rows("a", "0", 1)
    with pytest.raises(EnvironmentFailed, match="No Spark answers at sc:"):
        world.run("a", connect=lambda _: pytest.fail("a client would try for ten minutes"))
    assert not world.tree.parked()


def test_epochs_run_ids_and_attempts_are_in_the_log(world: World) -> None:
    world.give("a")
    world.rows("a", "0", 1)
    world.run("a")
    (said,) = log(world.table / "main").said("commit")
    assert (said["rota.run"], said["rota.group"], said["rota.epoch"]) == ("run1", "g", "1")
    assert str(said["rota.attempt"]).startswith("run1-")
    assert said["rota.incarnation"] == world.incarnation
    assert json.loads(str(said["rota.rows"])) == {"p:a": 1}


def test_a_folder_that_is_renamed_and_back_has_its_rows_once(world: World) -> None:
    """It had them twice, under both names, and nothing reported it."""
    for name in "01":
        world.rows("a", name, 3)
    world.give("a", "z")
    world.until_idle("a")
    for was, now in ("az", "za"):
        (world.folder / "land" / was).rename(world.folder / "land" / now)
        world.rows(now, f"2{now}", 1)
        world.until_idle("a", "z")
        assert {p: one.record.person for p, one in world.tree.parked().items()} == (
            {"p:z": False} if now == "z" else {}
        )
        world.server.clock = lambda: time.time() + 60.0
    assert damage(world.table / "main", {"p:a": {0: 3, 1: 3, 2: 1, 3: 1}}) == NO_DAMAGE
