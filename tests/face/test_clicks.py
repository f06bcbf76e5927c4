"""What a person does on the page: materialize a key, backfill a set of keys, replay a range; and what it leaves alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.face.line import Line, find_newest
from tests.waiting import wait_until

CHOSEN = ["c:k1", "c:k3"]  # not neighbours: Dagster makes a run for each stretch


@dataclass(frozen=True)
class Backfills:
    """How two ended, of some keys of `c`, and of all of `b` with its group's assignment; what the page showed before."""

    chosen: str
    all: str
    checkpoints: Mapping[str, Mapping[str, object]]
    epoch: Mapping[str, object]


def list_assets(pipeline: str) -> list[list[str]]:
    return [[pipeline, kind] for kind in ("ownership", "records", "checkpoints")]


def read_epoch(line: Line) -> dict[str, Any]:
    """What the page says of the newest epoch of group `day`."""
    shown = line.dev.materializations("day", "assignment")[0]["metadata"]
    return {name: shown[name] for name in ("epoch", "what happened", "partitions moved")}


@pytest.fixture(scope="module")
def backfills(line: Line) -> Backfills:
    """Dagster looks at backfills twice a minute, so both are waited for together."""
    for key in ("k1", "k2", "k3"):
        line.land("c", key, 1)
    line.land("b", "all", 1, 2)
    wait_until(lambda: {"c:k1", "c:k2", "c:k3"} <= set(find_newest(line, "c", "checkpoints")), 90, pause=1)
    wait_until(lambda: "b:all" in find_newest(line, "b", "checkpoints"), 90, pause=1)
    before, epoch = find_newest(line, "c", "checkpoints"), read_epoch(line)
    asked = (
        line.dev.backfill(list_assets("c"), CHOSEN),
        line.dev.backfill([["day", "assignment"], *list_assets("b")], None),
    )

    def read_statuses() -> list[str]:
        return [line.dev.backfill_status(backfill) for backfill in asked]

    wait_until(lambda: "REQUESTED" not in read_statuses(), 120, pause=1)
    return Backfills(*read_statuses(), before, epoch)


def test_a_backfill_of_any_keys_consumes_what_is_new_and_says_so_of_those_with_nothing(
    line: Line, backfills: Backfills
) -> None:
    before = backfills.checkpoints
    assert backfills.chosen == "COMPLETED_SUCCESS"
    after = find_newest(line, "c", "checkpoints")
    assert {k for k in after if after[k]["run"] != before.get(k, {}).get("run")} == set(CHOSEN)
    assert [(k, v) for k, v in line.rows("c") if k in CHOSEN] == [("c:k1", 1), ("c:k3", 1)]
    assert after["c:k1"]["rows"] == before["c:k1"]["rows"] == 1


def test_materialize_all_in_a_steady_state_ends_green_and_keeps_the_last_numbers(
    line: Line, backfills: Backfills
) -> None:
    assert backfills.all == "COMPLETED_SUCCESS"
    assert find_newest(line, "b", "records")["b:all"]["rows"] == 2
    assert read_epoch(line) == backfills.epoch
