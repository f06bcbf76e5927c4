"""What a person does on the page: materialize a key, backfill a set of keys, replay a range; and what it leaves alone."""

from tests.face.line import Line, newest
from tests.waiting import wait_until

ASSETS = [["c", "ownership"], ["c", "records"], ["c", "checkpoints"]]


def test_a_backfill_of_any_keys_consumes_what_is_new_and_says_so_of_those_with_nothing(line: Line) -> None:
    for key in ("k1", "k2", "k3"):
        line.land("c", key, 1)
    wait_until(lambda: {"c:k1", "c:k2", "c:k3"} <= set(newest(line, "c", "checkpoints")), 90, pause=1)
    before = newest(line, "c", "checkpoints")
    backfill = line.dev.backfill(ASSETS, ["c:k1", "c:k3"])  # not neighbours: Dagster makes a run for each stretch
    wait_until(lambda: line.dev.backfill_status(backfill) != "REQUESTED", 90, pause=1)
    assert line.dev.backfill_status(backfill) == "COMPLETED_SUCCESS"
    after = newest(line, "c", "checkpoints")
    assert {k for k in after if after[k]["run"] != before.get(k, {}).get("run")} == {"c:k1", "c:k3"}
    assert [(k, v) for k, v in line.rows("c") if k in ("c:k1", "c:k3")] == [("c:k1", 1), ("c:k3", 1)]
    assert after["c:k1"]["rows"] == before["c:k1"]["rows"] == 1


def test_materialize_all_in_a_steady_state_ends_green_and_keeps_the_last_numbers(line: Line) -> None:
    line.land("c", "all", 1, 2)
    wait_until(lambda: "c:all" in newest(line, "c", "checkpoints"), 90, pause=1)
    epoch = line.dev.materializations("night", "assignment")[0]["metadata"]
    backfill = line.dev.backfill([["night", "assignment"], *ASSETS], None)
    wait_until(lambda: line.dev.backfill_status(backfill) != "REQUESTED", 120, pause=1)
    assert line.dev.backfill_status(backfill) == "COMPLETED_SUCCESS"
    assert newest(line, "c", "records")["c:all"]["rows"] == 2
    again = line.dev.materializations("night", "assignment")[0]["metadata"]
    assert {name: again[name] for name in ("epoch", "what happened", "partitions moved")} == {
        name: epoch[name] for name in ("epoch", "what happened", "partitions moved")
    }
