"""What needs an operator because of runs: those that fail, by worker, and a batch that does not end."""

from dataclasses import replace
from itertools import takewhile
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.coordination.records import Checkpoint
from rota.coordination.store import Node
from rota.coordination.views import Read
from rota.face.causes import BEHIND
from rota.face.dagster_state import DagsterSeen, FailedRuns, RunRow, judge_runs
from rota.face.needs import find_needs
from rota.ids import WORKER_TAG
from tests.core.seen_group import RUN, SENSORS, WELL, P, commit_to, facts, observe_over


def commit_at(seconds: float) -> Read[Checkpoint]:
    """A checkpoint that was written so many seconds before now."""
    return replace(commit_to(5), node=Node(b"", 0, 1, 1, int((WELL.now - seconds) * 1000)))


def find_runs(*failed: FailedRuns, committed: float = 900.0) -> list[str]:
    """The lines about failed runs, if the newest checkpoint of each worker is so many seconds old."""
    seen = facts(checkpoints={"p:a": commit_at(committed), "p:b": commit_at(committed)})
    needs = observe_over(replace(seen, dagster=DagsterSeen(sensors=SENSORS, failed={"p": failed})))
    return [need.line for need in needs if need.cause == "runs" and need.person]


def test_a_commit_after_the_last_failure_ends_the_need() -> None:
    """Three runs failed on a full disk. A run that continued for five minutes had committed for four of them."""
    failed = FailedRuns(3, "the disk is full", ago=60.0, worker="w1")
    assert find_runs(failed)
    assert find_runs(failed, committed=61.0), "a failed run may have committed before it failed"
    assert find_runs(failed, committed=59.0) == []
    assert find_runs(replace(failed, worker="")), "a run whose worker is not known"
    assert find_runs(replace(failed, worker=""), committed=59.0) == []


def test_one_worker_whose_runs_fail_is_named() -> None:
    """Its disk was read-only. Runs for the other worker succeeded, and no line named the cause."""
    bad = FailedRuns(3, "Read-only file system", ago=60.0, worker="w2")
    (line,) = find_runs(bad)
    assert line.startswith("pipeline p: 3 of its runs for w2 failed in a row, and none for other workers: Read-only")
    assert "`rota drain w2`" in line
    (both,) = find_runs(bad, replace(bad, worker="w1", times=4))
    assert both == "pipeline p: 4 of its runs failed in a row: Read-only file system"
    assert find_runs(replace(bad, worker="w9")) == [], "it owns no partition any more"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12))
def test_failures_in_a_row_are_counted_for_each_worker(ended: list[tuple[str, bool]]) -> None:
    rows = [RunRow(str(place), {WORKER_TAG: worker}, failed) for place, (worker, failed) in enumerate(ended)]
    found = {one.worker: one for one in judge_runs(rows, WORKER_TAG, lambda run: (run, ""), 0.0)}
    for worker in "abc":
        mine = [(place, failed) for place, (of, failed) in enumerate(ended) if of == worker]
        row = [place for place, _ in takewhile(lambda one: one[1], mine)]
        one = found.get(worker)
        assert (one and (one.why, one.times)) == ((str(row[0]), len(row)) if row else None)


@pytest.mark.parametrize(
    ("batch", "committed", "lasted"),
    [
        (BEHIND, 900.0, BEHIND),
        (BEHIND - 1, 900.0, None),
        (900.0, BEHIND, BEHIND),
        (900.0, 5.0, None),
        (inf, inf, 900.0),
    ],
)
def test_the_first_observation_knows_how_long_a_batch_has_lasted(
    batch: float, committed: float, lasted: float | None
) -> None:
    """A transform hung on the driver. `rota status --check` had no observation before, so it reported nothing for ever."""
    batch, committed = (min(one, 900.0) for one in (batch, committed))
    seen = replace(
        facts(
            runs=(replace(RUN, since=WELL.now - batch),),
            checkpoints={"p:a": commit_at(committed), "p:b": commit_to(6)},
        ),
        pipelines=(replace(P, ends={"p:a": (5, 9)}),),
    )
    needs, _ = find_needs(seen)
    assert [(need.cause, seen.now - need.since) for need in needs if need.person] == (
        [("still", lasted)] if lasted else []
    )
