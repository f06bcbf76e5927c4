"""The line as a whole, `dagster dev` with its daemon: sensor -> assignment -> runs -> table -> checkpoint, no hand on it.

Each test lands keys of its own and leaves its group at rest. What happens in group `night` is played while the tests of
group `day` go on: the groups share nothing but the line. Tests that stop a part of the line come after them.
"""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.records import WorkerOverrides
from tests.demo.small_group import Run
from tests.face.line import Line, find_newest
from tests.processes import list_below
from tests.waiting import wait_until

A = {"x": [1, 2], "y": [3], "z": [4, 5, 6]}
B = {"x": [1], "q": [2]}
C = {"only": [7, 8]}
WAITS = """
def waits(n):
    \"\"\"At the gate, and shows that it does.\"\"\"
    import os
    import time

    while not os.path.exists({gate!r}):
        with open({beat!r} + str(os.getpid()), "w"):
            pass
        time.sleep(0.1)
    return n


def transform(df):
    from pyspark.sql.functions import udf

    return df.withColumn("n", udf(waits, "int")("n"))
"""


def land(line: Line, pipeline: str, rows: dict[str, list[int]]) -> None:
    for key, numbers in rows.items():
        line.land(pipeline, key, *numbers)


def list_commands(line: Line) -> list[str]:
    """Of each process that Dagster started and that still goes on."""
    assert line.dev.process is not None
    return [" ".join(command) for command in list_below(line.dev.process.pid).values()]


def cancel_at_work(line: Line) -> None:
    """The batches of pipeline `c` wait until there is a gate in a folder, and touch a file a process meanwhile."""
    (folder := line.folder / "gate").mkdir()
    with line.change("c", "transform", WAITS.format(gate=str(folder / "gate"), beat=str(folder / "beat-"))):

        def find_beating() -> set[Path]:
            return {beat for beat in folder.glob("beat-*") if time.time() - beat.stat().st_mtime < 3}

        line.land("c", "held", 1, 2)
        first = wait_until(find_beating)
        with line.tree("night") as tree:
            (run,) = {view.run_id for view in tree.runs() if "c:held" in view.partitions}
        line.dev.cancel(run)
        wait_until(lambda: line.dev.find_status(run) == "CANCELED", pause=1)
        wait_until(lambda: not find_beating() & first)
        wait_until(find_beating)  # the sensor found that the work is left and launched another
        assert not [row for row in line.rows("c") if row[0] == "c:held"]
        with line.tree("night") as tree:
            assert run not in {view.run_id for view in tree.runs()}
            assert not tree.parked()
        (folder / "gate").touch()
        line.holds("c", {"held": [1, 2]})
        again = line.dev.execute_again(run)  # with the config that it had: it serves the worker beside the sensor's run
        line.land("c", "held", 3)
        wait_until(lambda: line.dev.find_status(again) == "SUCCESS", pause=1)
        line.holds("c", {"held": [1, 2, 3]})


def land_in_a_new_folder(line: Line) -> None:
    before = line.epoch_where("night", lambda e: "n1" in e.after).epoch
    line.land("c", "new", 1, 2)
    grown = line.epoch_where("night", lambda e: e.epoch > before)
    assert "1 partition came to pipeline " in grown.sentence
    line.holds("c", {"new": [1, 2]})
    wait_until(lambda: "c:new" in find_newest(line, "c", "checkpoints"), pause=1)


def fail_a_rebalance(line: Line) -> None:
    before = line.epoch_where("night", lambda e: "n1" in e.after).epoch
    with line.tree("night") as tree:
        in_the_way = tree.paths.epoch(before + 1)  # where the next epoch's audit goes
        tree.store.create(in_the_way)
        line.join("n2", "night")
        failed = wait_until(
            lambda: [r for r in line.dev.runs(rota__rebalance="night") if r["status"] == "FAILURE"], pause=0.5
        )
        assert failed
        tree.store.delete(in_the_way)
    done = line.epoch_where("night", lambda e: e.epoch > before and "n2" in e.joined)
    again = line.dev.execute_again(failed[0]["runId"])
    wait_until(lambda: line.dev.find_status(again) == "SUCCESS", pause=1)
    assert line.epoch("night").epoch == done.epoch, "what it would have done was done meanwhile"
    line.land("c", "failed", 9)
    line.holds("c", {"failed": [9]})


@pytest.fixture(scope="module")
def night(line: Line) -> Iterator[dict[str, Future[None]]]:
    """What is played in group `night`, one after the other, from when a test first asks for it."""
    with ThreadPoolExecutor(1) as pool:
        yield {
            play.__name__: pool.submit(play, line) for play in (cancel_at_work, land_in_a_new_folder, fail_a_rebalance)
        }


def test_two_pipelines_of_one_group_and_one_of_another_are_consumed_side_by_side(line: Line) -> None:
    """By runs that are forks of one warm process. Dagster decides how runs start: should a release of it start them
    otherwise, this is where it is seen."""
    for name, rows in (("a", A), ("b", B), ("c", C)):
        land(line, name, rows)
    for name, rows in (("a", A), ("b", B), ("c", C)):
        line.holds(name, rows)
    day = line.epoch_where("day", lambda e: set(e.after) == {"w1", "w2"})
    assert max(day.after.values()) - min(day.after.values()) <= 1
    assert line.epoch("night").after["n1"] >= 1
    seen = wait_until(
        lambda: (c := find_newest(line, "a", "checkpoints")) and set(c) >= {f"a:{key}" for key in A} and c,
        pause=0.5,
    )
    assert {p: (seen[p]["offset"], seen[p]["lag"], seen[p]["rows"]) for p in ("a:x", "a:y", "a:z")} == {
        "a:x": (1, 0, 2), "a:y": (1, 0, 1), "a:z": (1, 0, 3),
    }  # fmt: skip
    owners = find_newest(line, "a", "ownership")
    assert {o["worker"] for o in owners.values()} <= {"w1", "w2"}
    assert all(o["epoch"] and o["token"] for o in owners.values())
    shown = wait_until(lambda: line.dev.materializations("day", "assignment"), pause=0.5)[0]
    assert f"Epoch {shown['metadata']['epoch']}: " in str(shown["metadata"]["what happened"])
    launched = {str(seen[f"a:{key}"]["run"]) for key in A}
    assert line.dev.materializations("day", "membership"), "the catalog does not list it as never materialized"
    by = {r["runId"]: {t["key"]: t["value"] for t in r["tags"]} for r in line.dev.runs()}
    assert all(by[run].get("dagster/sensor_name") == "a__backlog" for run in launched)
    commands = list_commands(line)
    assert [c for c in commands if "multiprocessing.forkserver" in c]
    assert not [c for c in commands if "multiprocessing.spawn" in c]


@pytest.mark.usefixtures("night")
def test_a_worker_that_dies_is_replaced_and_gets_its_work_back_when_it_returns(line: Line) -> None:
    land(line, "a", {"m1": [1], "m2": [2], "m3": [3]})
    line.holds("a", {"m1": [1], "m2": [2], "m3": [3]})
    before = line.epoch("day").epoch
    line.kill("w2")
    gone = line.epoch_where("day", lambda e: e.epoch > before and e.left == ("w2",))
    assert f"Epoch {gone.epoch}: w2 left. " in gone.sentence
    assert dict(gone.after).get("w2", 0) == 0
    land(line, "a", {"m1": [11], "m2": [12], "m3": [13]})
    line.holds("a", {"m1": [1, 11], "m2": [2, 12], "m3": [3, 13]})
    line.join("w2", "day")
    back = line.epoch_where("day", lambda e: e.epoch > gone.epoch and e.joined == ("w2",))
    assert max(back.after.values()) - min(back.after.values()) <= 1
    assert back.moved == min(back.after.values())
    land(line, "a", {"m1": [21], "m2": [22], "m3": [23]})
    line.holds("a", {"m1": [1, 11, 21], "m2": [2, 12, 22], "m3": [3, 13, 23]})


def test_a_cordoned_worker_keeps_what_it_has_and_gets_nothing_new(line: Line) -> None:
    held = line.epoch_where("day", lambda e: set(e.after) == {"w1", "w2"})
    with line.tree("day") as tree:
        path = tree.paths.worker("w1")
        tree.update(path, WorkerOverrides, lambda _: WorkerOverrides(cordoned=True))
        line.land("b", "r", 5)
        line.land("b", "s", 6)
        line.land("b", "t", 7)
        grown = line.epoch_where("day", lambda e: e.epoch > held.epoch and e.after["w2"] == held.after["w2"] + 3)
        assert grown.after["w1"] == held.after["w1"]
        line.holds("b", {"r": [5], "s": [6], "t": [7]})
        tree.update(path, WorkerOverrides, lambda _: WorkerOverrides())
    line.epoch_where("day", lambda e: e.epoch > grown.epoch and max(e.after.values()) - min(e.after.values()) <= 1)


def test_a_rebalance_that_changes_nothing_is_an_observation_and_no_epoch(line: Line) -> None:
    before = line.epoch_where("day", lambda e: set(e.after) == {"w1", "w2"})
    run = line.dev.launch("day__rebalance")
    wait_until(lambda: line.dev.find_status(run) == "SUCCESS", pause=1)
    assert line.epoch("day").epoch == before.epoch
    assert run not in {m["runId"] for m in line.dev.materializations("day", "assignment")}


def test_a_cancelled_run_stops_spark_commits_nothing_and_loses_nothing(night: dict[str, Future[None]]) -> None:
    night["cancel_at_work"].result()


def test_a_new_folder_is_a_new_partition(night: dict[str, Future[None]]) -> None:
    night["land_in_a_new_folder"].result()


def test_a_rebalance_that_fails_is_tried_again_until_it_can(night: dict[str, Future[None]]) -> None:
    night["fail_a_rebalance"].result()


def test_epochs_that_zookeeper_no_longer_keeps_come_from_dagster(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper keeps 200; the test deletes all but the newest."""
    for name, value in {**line.environ, "ROTA_DAGSTER": line.dev.url}.items():
        monkeypatch.setenv(name, value)
    run, day = Run(), ("--group", "day")
    with line.tree("day") as tree:
        epochs = tree.epochs()
        wait_until(
            lambda: find_newest(line, "day", "assignment").get("None", {}).get("epoch") == epochs[-1].epoch, pause=1
        )
        before, first = (datetime.fromtimestamp(at - 0.001, UTC).isoformat() for at in (epochs[-1].at, epochs[0].at))
        why = run.json("why", "a:x", "--at", before, *day)
        for epoch in epochs[:-1]:
            tree.store.delete(tree.paths.epoch(epoch.epoch))
    again = run.json("why", "a:x", "--at", before, *day)
    same = ("known", "owner", "since_epoch", "until_epoch", "reason", "sentence", "epoch", "note")
    assert [again[key] for key in same] == [why[key] for key in same]
    history = run.json("history", "--since", first, *day)
    assert [epoch["epoch"] for epoch in history["epochs"]] == [epoch.epoch for epoch in epochs]  # type: ignore[attr-defined]
    assert history["note"] == ""
    monkeypatch.setenv("ROTA_DAGSTER", "http://127.0.0.1:1")
    assert str(run.json("history", "--since", first, *day)["note"]).startswith("ZooKeeper has the epochs since ")


def test_while_zookeeper_is_gone_ticks_and_runs_fail_with_the_line_of_a_command_and_then_go_on(
    line: Line, zookeeper: EmbeddedZooKeeper
) -> None:
    sensors = ("day__membership", "a__backlog")

    def find_ticks(since: float, *statuses: str) -> dict[str, dict[str, Any]]:
        """The newest tick of each sensor that began since then and ended so."""
        found = {s: [t for t in line.dev.read_ticks(s) if t["timestamp"] > since] for s in sensors}
        return {s: t[0] for s, ticks in found.items() if (t := [t for t in ticks if t["status"] in statuses])}

    zookeeper.kill()
    gone = time.time()
    try:
        run = line.dev.launch("day__rebalance")
        failed = wait_until(lambda: len(t := find_ticks(gone, "FAILURE")) == len(sensors) and t, pause=1)
        errors = [tick["error"] for tick in failed.values()]
        errors += wait_until(lambda: line.dev.read_failures(run), pause=0.5)
    finally:
        zookeeper.start()
    back = time.time()
    for error in errors:
        assert error["message"].startswith(f"No ZooKeeper at {zookeeper.hosts} after 5 s (")
        assert "Start one with `rota up`" in error["message"]
        assert (len(error["message"].splitlines()), error["stack"], error["cause"]) == (1, [], None)
    line.land("a", "outage", 1)  # a new partition: the sensor that sees it requests a run, and its tick ends
    wait_until(lambda: len(find_ticks(back, "SKIPPED", "SUCCESS")) == len(sensors), pause=1)
    line.holds("a", {"outage": [1]})
