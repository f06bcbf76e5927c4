"""Why a serving run ends: another run waits for its slot, its pipeline file changed, or its session ended.

Invariants:
1. If runs of any job wait for a slot that the end of consuming runs frees, as many of the oldest consuming runs end. The
   run of a worker also ends if a run waits for the same worker. While a slot is free, no run ends for that: the waiting run
   only waits for Dagster's daemon.
2. A run serves at least a third of `linger` seconds before it ends for another run: else runs would only start and end.
3. A run whose pipeline file changed ends. The next run loads the new file.
4. A run that lost its session ends: the sensor reports it as failed, and another run may serve its worker.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dagster as dg

from rota.catalog import has_changed
from rota.dagster.assets.names import CONSUME, INCARNATION
from rota.dagster.private import TagConcurrencyLimitsCounter
from rota.pipeline import Pipeline

WAITS = 5.0  # seconds in the queue after which a run counts as waiting for a slot
HAS_SLOT = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
QUEUE_INTERVAL = 5.0  # seconds between two reads of the queue


@dataclass(frozen=True, slots=True)
class Seen:
    """A run of the run storage; `since` is when it was queued, or when it started."""

    run_id: str
    incarnation: str | None
    since: float


def makes_room(run_id: str, waiting: Sequence[Seen], lasting: Sequence[Seen]) -> str:
    """Return for which waiting run this run ends, in a sentence; empty if for none."""
    mine = next((one.incarnation for one in lasting if one.run_id == run_id), None)
    for one in waiting:
        if one.incarnation is not None and one.incarnation == mine:
            return f"run {one.run_id} waits for its worker"
    oldest = sorted(lasting, key=lambda one: one.since)[: len(waiting)]
    return f"run {waiting[0].run_id} waits for a slot" if any(one.run_id == run_id for one in oldest) else ""


def find_waiting(instance: dg.DagsterInstance, run_id: str) -> str:
    """Read the queue, and return the result of `makes_room`."""
    now = time.time()
    queued = _list_runs(instance, [dg.DagsterRunStatus.QUEUED])
    # the clock may have gone back
    if not (waiting := [(run, one) for run, one in queued if abs(now - one.since) > WAITS]):
        return ""
    with_slot = _list_runs(instance, HAS_SLOT)
    is_kept = make_limits(instance, [run for run, _ in with_slot])
    lasting = [
        one
        for run, one in with_slot
        if run.status == dg.DagsterRunStatus.STARTED and CONSUME in run.tags and one.incarnation
    ]
    return makes_room(run_id, [one for run, one in waiting if is_kept(run)], lasting)


def _list_runs(instance: dg.DagsterInstance, statuses: list[dg.DagsterRunStatus]) -> list[tuple[dg.DagsterRun, Seen]]:
    """Return the runs of any job that have one of these statuses."""
    found: list[tuple[dg.DagsterRun, Seen]] = []
    for record in instance.get_run_records(dg.RunsFilter(statuses=statuses)):
        run, since = record.dagster_run, record.start_time or record.create_timestamp.timestamp()
        found.append((run, Seen(run.run_id, run.tags.get(INCARNATION), since)))
    return found


def make_limits(instance: dg.DagsterInstance, with_slot: Sequence[dg.DagsterRun]) -> Callable[[dg.DagsterRun], bool]:
    """Return a function: whether a run finds no slot now, and would if a consuming run ended, by the limits of Dagster's
    daemon. If the limits are unknown, it returns True."""
    queue = instance.get_concurrency_config().run_queue_config
    if queue is None:
        return lambda _: True
    full = 0 <= queue.max_concurrent_runs <= len(with_slot)
    is_blocked = TagConcurrencyLimitsCounter(
        [dict(limit) for limit in queue.tag_concurrency_limits], with_slot
    ).is_blocked
    return lambda run: full or is_blocked(run) if CONSUME in run.tags else full and not is_blocked(run)


def make_ending(
    instance: dg.DagsterInstance,
    run_id: str,
    pipeline: Pipeline,
    linger: float,
    clock: Callable[[], float],
    is_alive: Callable[[], bool],
) -> Callable[[], str]:
    """Return the function that `rota.run.serve` calls before each pause: why this run ends now; empty if it does not."""
    due = clock() + linger / 3

    def find_reason() -> str:
        nonlocal due
        if not is_alive():
            return "its session with ZooKeeper ended, so it counts as dead"
        if has_changed(pipeline):
            return f"the file of pipeline {pipeline.name} changed"
        if clock() < due:
            return ""
        due = clock() + QUEUE_INTERVAL
        return find_waiting(instance, run_id)

    return find_reason
