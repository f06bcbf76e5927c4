"""What a person does on the page: materialize a key, backfill a set of keys, replay a range; and what it leaves alone."""

from tests.face.line import Line, newest
from tests.waiting import wait_until

ASSETS = [["c", "ownership"], ["c", "records"], ["c", "checkpoints"]]


def test_a_backfill_of_any_keys_consumes_what_is_new_and_says_so_of_those_with_nothing(line: Line) -> None:
    for key in ("k1", "k2", "k3"):
        line.land("c", key, 1)
    wait_until(lambda: {"c:k1", "c:k2", "c:k3"} <= set(newest(line, "c", "checkpoints")), 90, pause=0.5)
    before = newest(line, "c", "checkpoints")
    backfill = line.dev.backfill(ASSETS, ["c:k1", "c:k3"])  # not neighbours: Dagster makes a run for each stretch
    wait_until(lambda: line.dev.backfill_status(backfill) != "REQUESTED", 90, pause=0.5)
    assert line.dev.backfill_status(backfill) == "COMPLETED_SUCCESS"
    after = newest(line, "c", "checkpoints")
    assert {k for k in after if after[k]["run"] != before.get(k, {}).get("run")} == {"c:k1", "c:k3"}
    assert [(k, v) for k, v in line.rows("c") if k in ("c:k1", "c:k3")] == [("c:k1", 1), ("c:k3", 1)]
    assert after["c:k1"]["rows"] == 0


def test_a_schedule_consumes_by_the_clock_for_those_who_turn_the_sensor_off(line: Line) -> None:
    schedule = "b__backlog_every_minute"
    line.dev.turn("Sensor", "b__backlog", on=False)
    try:
        wait_until(lambda: not line.dev.ticking("b__backlog"), 60, pause=0.5)
        line.dev.turn("Schedule", schedule, on=True)
        line.land("b", "clock", 1)
        done = wait_until(lambda: newest(line, "b", "checkpoints").get("b:clock"), 150, pause=0.5)
        assert done["run"] in {run["runId"] for run in line.dev.runs(dagster__schedule_name=schedule)}
    finally:
        line.dev.turn("Schedule", schedule, on=False)
        line.dev.turn("Sensor", "b__backlog", on=True)
