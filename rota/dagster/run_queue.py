"""Dagster's queue of runs, which a rebalance need not stand in.

A run in the queue waits for the daemon's next look at it: half a second to a second of the time from a dead worker to the
next commit. Law: a run of the rebalance job starts when it is submitted, unless another of its group is on its way; it then
queues, as all other runs do. A run is launched once, and not after it was cancelled. Limits of runs count it as any other.

In dagster.yaml: `run_coordinator: {module: rota.dagster.run_queue, class: RunQueue}`, with the settings of Dagster's own
`run_queue` as its `config`. An instance without it serves rota as well, and is that much slower.
"""

from dagster import DagsterRun, DagsterRunStatus, RunsFilter

from rota.dagster.assets.names import REBALANCE
from rota.dagster.private import QueuedRunCoordinator, SubmitRunContext
from rota.dagster.sensors.runs import UNFINISHED

ON_THEIR_WAY = [status for status in UNFINISHED if status != DagsterRunStatus.NOT_STARTED]  # what was submitted


class RunQueue(QueuedRunCoordinator):
    """Dagster's own, but for rebalances."""

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """The run, which is starting or in the queue. Raises as Dagster's launcher does; the run has then failed."""
        run = context.dagster_run
        group = run.tags.get(REBALANCE)
        if group is None or run.status != DagsterRunStatus.NOT_STARTED or self._find_others(group):
            return super().submit_run(context)
        return self._instance.launch_run(run.run_id, context.workspace)

    def _find_others(self, group: str) -> int:
        return self._instance.get_runs_count(RunsFilter(tags={REBALANCE: group}, statuses=ON_THEIR_WAY))
