"""Why a run that could go on makes an end, as far as Dagster and the disk know.

Laws:
1. A run makes room for a run that waits for a slot: those that have run longest end, as many as wait. Whoever waits for the
   same worker is made room for by that worker's run.
2. A run serves `linger` seconds at least before it makes room: else runs would only start and end.
3. A run whose pipeline file changed ends: the next one loads the file as it is then.
"""

import time
from collections.abc import Callable

import dagster as dg

from rota.pipeline import Pipeline, has_changed

CONSUME, INCARNATION = "rota/consume", "incarnation"  # tags of consuming runs
WAITS = 5.0  # seconds in the queue after which a run is not about to start
EVERY = 5.0  # seconds between two looks at the queue


def find_waiting(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """Which run this one makes room for, in a sentence; empty if for none."""
    records = instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    queued = [one for one in records if CONSUME in one.dagster_run.tags]
    waiting = [one.dagster_run for one in queued if abs(time.time() - one.create_timestamp.timestamp()) > WAITS]
    if not waiting:
        return ""
    for one in waiting:
        if one.tags.get(INCARNATION) == run.tags.get(INCARNATION):
            return f"run {one.run_id} waits for its worker"
    going = instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    lasting = [one for one in going if {CONSUME, INCARNATION} <= one.dagster_run.tags.keys()]
    lasting.sort(key=lambda one: one.start_time or 0.0)
    first = [one.dagster_run.run_id for one in lasting[: len(waiting)]]
    return f"run {waiting[0].run_id} waits for a slot" if run.run_id in first else ""


def make_ending(
    instance: dg.DagsterInstance, run: dg.DagsterRun, pipeline: Pipeline, linger: float, clock: Callable[[], float]
) -> Callable[[], str]:
    """What `rota.serve` asks before each pause: why this run ends now, or nothing."""
    due = clock() + linger

    def find_reason() -> str:
        nonlocal due
        if has_changed(pipeline):
            return f"the file of pipeline {pipeline.name} changed"
        if clock() < due:
            return ""
        due = clock() + EVERY
        return find_waiting(instance, run)

    return find_reason
