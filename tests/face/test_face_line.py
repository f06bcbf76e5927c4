"""The line as a whole, `dagster dev` with its daemon: sensor -> assignment -> runs -> table -> checkpoint, no hand on it.

The tests stand in the order of a story and each leaves the line at rest; each also holds alone.
"""

from rota.coordination.records import WorkerWishes
from tests.face.line import Line
from tests.waiting import wait_until

A = {"x": [1, 2], "y": [3], "z": [4, 5, 6]}
B = {"x": [1], "q": [2]}
C = {"only": [7, 8]}


def land(line: Line, pipeline: str, rows: dict[str, list[int]]) -> None:
    for key, numbers in rows.items():
        line.land(pipeline, key, *numbers)


def newest(line: Line, *key: str) -> dict[str, dict[str, object]]:
    """partition -> the metadata of its newest materialization."""
    found: dict[str, dict[str, object]] = {}
    for one in line.dev.materializations(*key):
        found.setdefault(str(one["partition"]), {**one["metadata"], "run": one["runId"]})
    return found


def test_two_pipelines_of_one_group_and_one_of_another_are_consumed_side_by_side(line: Line) -> None:
    for name, rows in (("a", A), ("b", B), ("c", C)):
        land(line, name, rows)
    for name, rows in (("a", A), ("b", B), ("c", C)):
        line.holds(name, rows, 90)
    day, night = line.epoch("day"), line.epoch("night")
    assert set(day.after) == {"w1", "w2"}
    assert max(day.after.values()) - min(day.after.values()) <= 1
    assert dict(night.after) == {"n1": 1}
    seen = wait_until(lambda: (c := newest(line, "a", "checkpoints")) and set(c) == set(A) and c, 30, pause=0.5)
    assert {key: (c["offset"], c["lag"], c["rows"]) for key, c in seen.items()} == {
        "x": (1, 0, 2), "y": (1, 0, 1), "z": (1, 0, 3),
    }  # fmt: skip
    owners = newest(line, "a", "ownership")
    assert {o["worker"] for o in owners.values()} <= {"w1", "w2"}
    assert all(o["epoch"] and o["token"] for o in owners.values())
    shown = line.dev.materializations("day", "assignment")[0]
    assert f"Epoch {shown['metadata']['epoch']}: " in str(shown["metadata"]["what happened"])
    launched = {str(c["run"]) for c in seen.values()}
    by = {r["runId"]: {t["key"]: t["value"] for t in r["tags"]} for r in line.dev.runs()}
    assert all(by[run].get("dagster/sensor_name") == "a__backlog" for run in launched)


def test_a_worker_that_dies_is_replaced_and_gets_its_work_back_when_it_returns(line: Line) -> None:
    before = line.epoch("day").epoch
    line.kill("w2")
    gone = line.epoch_where("day", lambda e: e.epoch > before and e.left == ("w2",))
    assert f"Epoch {gone.epoch}: w2 left. " in gone.sentence
    assert dict(gone.after).get("w2", 0) == 0
    land(line, "a", {"x": [10], "y": [11], "z": [12]})
    line.holds("a", {"x": [1, 2, 10], "y": [3, 11], "z": [4, 5, 6, 12]})
    line.join("w2", "day")
    back = line.epoch_where("day", lambda e: e.epoch > gone.epoch and e.joined == ("w2",))
    assert max(back.after.values()) - min(back.after.values()) <= 1
    assert back.moved == min(back.after.values())
    land(line, "a", {"x": [20], "y": [21], "z": [22]})
    line.holds("a", {"x": [1, 2, 10, 20], "y": [3, 11, 21], "z": [4, 5, 6, 12, 22]}, 90)


def test_a_new_folder_is_a_new_partition(line: Line) -> None:
    before = line.epoch("night").epoch
    line.land("c", "new", 1, 2)
    grown = line.epoch_where("night", lambda e: e.epoch > before)
    assert "1 partition had nobody. 1 of 2 placed." in grown.sentence
    line.holds("c", {**C, "new": [1, 2]})
    wait_until(lambda: "new" in newest(line, "c", "checkpoints"), 30, pause=0.5)


def test_a_cordoned_worker_keeps_what_it_has_and_gets_nothing_new(line: Line) -> None:
    held = line.epoch("day")
    with line.tree("day") as tree:
        path = tree.paths.worker("w1")
        tree.update(path, WorkerWishes, lambda _: WorkerWishes(cordoned=True))
        line.land("b", "r", 5)
        line.land("b", "s", 6)
        line.land("b", "t", 7)
        grown = line.epoch_where("day", lambda e: e.epoch > held.epoch and e.after["w2"] == held.after["w2"] + 3)
        assert grown.after["w1"] == held.after["w1"]
        line.holds("b", {**B, "r": [5], "s": [6], "t": [7]})
        tree.update(path, WorkerWishes, lambda _: WorkerWishes())
    line.epoch_where("day", lambda e: e.epoch > grown.epoch and max(e.after.values()) - min(e.after.values()) <= 1)


def test_a_rebalance_that_changes_nothing_is_an_observation_and_no_epoch(line: Line) -> None:
    before = line.epoch("day")
    run = line.dev.launch("day__rebalance")
    wait_until(lambda: status(line, run) == "SUCCESS", 60, pause=0.5)
    assert line.epoch("day").epoch == before.epoch
    assert run not in {m["runId"] for m in line.dev.materializations("day", "assignment")}


def test_a_rebalance_that_fails_is_tried_again_until_it_can(line: Line) -> None:
    before = line.epoch("night").epoch
    with line.tree("night") as tree:
        in_the_way = tree.paths.epoch(before + 1)  # where the next epoch's audit goes
        tree.store.create(in_the_way)
        line.join("n2", "night")
        failed = wait_until(lambda: [r for r in line.dev.runs(rota__rebalance="night") if r["status"] == "FAILURE"], 60)
        assert failed
        tree.store.delete(in_the_way)
    line.epoch_where("night", lambda e: e.epoch > before and e.joined == ("n2",))
    line.land("c", "only", 9)
    line.holds("c", {**C, "only": [7, 8, 9], "new": [1, 2]}, 90)


def test_what_happened_while_the_daemon_was_dead_is_found_when_it_is_back(line: Line) -> None:
    before = line.epoch("night").epoch
    line.land("c", "only", 10)
    with line.tree("night") as tree:
        wait_until(tree.runs, 60)
    line.dev.stop(kill=True)  # in the middle of a run
    line.kill("n2")
    line.land("c", "only", 11)
    line.dev.start()
    line.epoch_where("night", lambda e: e.epoch > before and e.left == ("n2",))
    line.holds("c", {"only": [7, 8, 9, 10, 11], "new": [1, 2]}, 90)


def status(line: Line, run: str) -> str:
    return next(r["status"] for r in line.dev.runs() if r["runId"] == run)
