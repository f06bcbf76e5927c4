"""What a person does on the page: materialize a key, backfill a set of keys, replay a range; and what it leaves alone."""

from typing import Any

from tests.face.line import Line
from tests.face.test_face_line import newest, status
from tests.waiting import wait_until

ASSETS = [["c", "ownership"], ["c", "records"], ["c", "checkpoints"]]


def offsets(line: Line, pipeline: str, group: str) -> dict[str, tuple[int, int]]:
    """Partition -> (offset, token) of its checkpoint."""
    with line.tree(group) as tree:
        found = tree.checkpoints()
    return {p: (c.record.offset, c.record.token) for p, c in found.items() if p.startswith(f"{pipeline}-")}


def over(line: Line, run: str) -> str:
    """The run's status when it is over."""
    return wait_until(lambda: (s := status(line, run)) in ("SUCCESS", "FAILURE", "CANCELED") and s, 90, pause=0.5)


def test_a_backfill_of_any_keys_consumes_what_is_new_and_says_so_of_those_with_nothing(line: Line) -> None:
    for key in ("k1", "k2", "k3"):
        line.land("c", key, 1)
    wait_until(lambda: {"k1", "k2", "k3"} <= set(newest(line, "c", "checkpoints")), 90, pause=0.5)
    before = newest(line, "c", "checkpoints")
    backfill = line.dev.backfill(ASSETS, ["k1", "k3"])  # not neighbours: Dagster makes a run for each stretch
    done = lambda: line.dev.backfill_status(backfill)  # noqa: E731
    assert wait_until(lambda: (s := done()) not in ("REQUESTED",) and s, 90, pause=0.5) == "COMPLETED_SUCCESS"
    after = newest(line, "c", "checkpoints")
    assert {k for k in after if after[k]["run"] != before.get(k, {}).get("run")} == {"k1", "k3"}
    assert [(k, v) for k, v in line.rows("c") if k in ("c-k1", "c-k3")] == [("c-k1", 1), ("c-k3", 1)]
    assert after["k1"]["rows"] == 0


def test_a_replay_replaces_the_range_and_moves_no_live_offset(line: Line) -> None:
    line.land("c", "again", 1, 2)
    line.land("c", "again", 3)
    wait_until(lambda: "again" in newest(line, "c", "checkpoints"), 90, pause=0.5)
    before, rows = offsets(line, "c", "night"), line.rows("c")
    config: Any = {"ops": {"c__batch": {"config": {"partitions": ["again"], "replay": {"from": 0, "to": 1}}}}}
    run = line.dev.launch("c__consume", config)
    assert over(line, run) == "SUCCESS"
    assert line.rows("c") == rows
    assert offsets(line, "c", "night") == before
    shown = [m for m in line.dev.materializations("c", "records") if m["runId"] == run]
    assert [(m["partition"], m["metadata"]["replayed"]) for m in shown] == [("again", "[0, 1)")]
    assert newest(line, "c", "checkpoints")["again"]["offset"] == 2


def test_a_key_that_nobody_may_work_on_is_skipped_with_its_reason(line: Line) -> None:
    config: Any = {"ops": {"c__batch": {"config": {"partitions": ["nowhere"], "incarnation": ""}}}}
    run = line.dev.launch("c__consume", config)
    assert over(line, run) == "SUCCESS"
    assert "nobody owns it" in line.dev.messages(run)
