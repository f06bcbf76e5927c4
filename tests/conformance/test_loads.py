"""What a partition carries, as its runs measure it: rows a second, whatever the batches were."""

import pytest

from rota.coordination.checkpoint import SMOOTHING, carry_load, read_load
from rota.coordination.records import Checkpoint
from rota.coordination.store import Node
from rota.coordination.views import Read


def write(rows: int, now: float, seen: Read[Checkpoint] | None) -> Read[Checkpoint]:
    """The checkpoint after one more batch of so many rows."""
    offset = seen.record.offset + 1 if seen else 1
    record = carry_load(seen, Checkpoint(offset=offset, token=1, run_id="r", rows=rows))
    return Read(record, Node(b"", 0, 1, 1, int(now * 1000), 0))


def measure(rate: float, pause: float, seconds: float, backlog: int = 0) -> Read[Checkpoint]:
    """A partition that gets `rate` rows a second and is consumed every `pause` seconds."""
    seen, now = None, 1_000.0
    while now <= 1_000.0 + seconds:
        seen = write(int(rate * pause) + (backlog if seen is None else 0), now, seen)
        now += pause
    assert seen is not None
    return seen


@pytest.mark.parametrize("pause", [0.5, 8.0, 60.0, 300.0])
@pytest.mark.parametrize("seconds", [300.0, 600.0, 6_000.0])
def test_a_steady_load_is_measured_from_the_first_minutes_on(pause: float, seconds: float) -> None:
    """However large the batches are, and however long it is measured."""
    seen = measure(100.0, pause, seconds)
    for silent in (0.0, 0.99 * pause):  # until the next batch is due
        assert read_load(seen, seen.node.mtime / 1000 + silent) == pytest.approx(100.0, rel=0.01)


def test_what_waited_before_the_first_batch_is_no_load() -> None:
    seen = measure(100.0, 8.0, 120.0, backlog=10_000_000)
    assert read_load(seen, seen.node.mtime / 1000) == pytest.approx(100.0, rel=0.06)


def test_what_was_consumed_once_or_by_an_older_rota_has_no_measured_load() -> None:
    assert read_load(measure(100.0, 8.0, 1.0), 1_000.0) is None
    older = Read(Checkpoint(offset=1, token=1, run_id="r", rows=5), Node(b"", 0, 1, 1, 1_000_000, 0))
    assert read_load(older, 1_000.0) is None
    young = write(800, 1_008.0, older)
    assert read_load(young, 1_008.0) is None, "two batches give their times"
    assert read_load(write(5_200, 1_060.0, young), 1_060.0) == pytest.approx(100.0, rel=0.01)


def test_a_silent_partition_fades() -> None:
    seen = measure(100.0, 8.0, 6_000.0)
    at = seen.node.mtime / 1000
    before = read_load(seen, at)
    assert before is not None
    assert read_load(seen, at + 8.0 + SMOOTHING) == pytest.approx(before / 2.718, rel=0.01)


def test_a_batch_that_is_reported_again_counts_once_and_one_before_an_idle_look_is_kept() -> None:
    seen = measure(100.0, 8.0, 600.0)
    now = seen.node.mtime / 1000
    said = Checkpoint(offset=seen.record.offset, token=1, run_id="r", rows=seen.record.rows)
    again = Read(carry_load(seen, said), Node(b"", 1, 1, 2, int(now * 1000) + 1000, 0))
    assert read_load(again, now) == pytest.approx(100.0, rel=0.02)
    idle = Read(carry_load(seen, said.model_copy(update={"rows": 0})), Node(b"", 1, 1, 2, int(now * 1000) + 1000, 0))
    assert read_load(idle, now) == pytest.approx(100.0, rel=0.02)


def test_a_clock_that_goes_back_breaks_nothing() -> None:
    seen = measure(100.0, 8.0, 600.0)
    again = write(6_200, 570.0, write(800, 508.0, write(800, 500.0, seen)))
    load = read_load(again, 400.0)
    assert load is not None
    assert 0 <= load < 1_000
