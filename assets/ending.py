"""Why a run that could go on makes an end, as far as Dagster and the disk know.

Laws:
1. A run makes room for a run that waits for a slot: those that have run longest end, as many as wait. Whoever waits for the
   same worker is made room for by that worker's run.
2. A run serves a third of `linger` seconds at least before it makes room: else runs would only start and end.
3. A run whose pipeline file changed ends: the next one loads the file as it is then.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dagster as dg

from rota.catalog import has_changed
from rota.dagster.assets.names import CONSUME, INCARNATION
from rota.pipeline import Pipeline

WAITS = 5.0  # seconds in the queue after which a run is not about to start
EVERY = 5.0  # seconds between two looks at the queue


@dataclass(frozen=True, slots=True)
class Seen:
    """A run as the run storage tells it; `since` is when it was queued, or when it started."""

    run_id: str
    incarnation: str | None
    since: float


def makes_room(run_id: str, waiting: Sequence[Seen], lasting: Sequence[Seen]) -> str:
    """Which of the waiting runs this one makes room for, in a sentence; empty if for none."""
    mine = next((one.incarnation for one in lasting if one.run_id == run_id), None)
    for one in waiting:
        if one.incarnation is not None and one.incarnation == mine:
            return f"run {one.run_id} waits for its worker"
    oldest = sorted(lasting, key=lambda one: one.since)[: len(waiting)]
    return f"run {waiting[0].run_id} waits for a slot" if any(one.run_id == run_id for one in oldest) else ""


def find_waiting(instance: dg.DagsterInstance, run_id: str) -> str:
    """What `makes_room` says now."""
    now = time.time()
    queued = _list_runs(instance, dg.DagsterRunStatus.QUEUED)
    if not (waiting := [one for one in queued if abs(now - one.since) > WAITS]):  # the clock may have gone back
        return ""
    started = _list_runs(instance, dg.DagsterRunStatus.STARTED)
    return makes_room(run_id, waiting, [one for one in started if one.incarnation is not None])


def _list_runs(instance: dg.DagsterInstance, status: dg.DagsterRunStatus) -> list[Seen]:
    """The consuming runs of any pipeline that have this status."""
    found: list[Seen] = []
    for record in instance.get_run_records(dg.RunsFilter(statuses=[status])):
        run, since = record.dagster_run, record.start_time or record.create_timestamp.timestamp()
        if CONSUME in run.tags:
            found.append(Seen(run.run_id, run.tags.get(INCARNATION), since))
    return found


def make_ending(
    instance: dg.DagsterInstance, run_id: str, pipeline: Pipeline, linger: float, clock: Callable[[], float]
) -> Callable[[], str]:
    """What `rota.serve` asks before each pause: why this run ends now, or nothing."""
    due = clock() + linger / 3

    def find_reason() -> str:
        nonlocal due
        if has_changed(pipeline):
            return f"the file of pipeline {pipeline.name} changed"
        if clock() < due:
            return ""
        due = clock() + EVERY
        return find_waiting(instance, run_id)

    return find_reason
