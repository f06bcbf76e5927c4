"""Dagster's queue of runs, in which no run stands without need.

A run in the queue waits for the daemon's next look at it: half a second to a second of the time from a dead worker to the
next commit, and of that from an idle worker's first file. Laws:
1. A run of the rebalance job starts when it is submitted, unless another of its group is on its way; it then queues.
2. So does a consuming run, where no run queues and the limits of runs have room. (Some that are submitted in one moment may
   pass a limit together: limits are about speed.)
3. All other runs queue. A run is launched once, and not after it was cancelled. Limits of runs count it as any other.

In dagster.yaml: `run_coordinator: {module: rota.dagster.run_queue, class: RunQueue}`, with the settings of Dagster's own
`run_queue` as its `config`. An instance without it serves rota as well, and is that much slower.
"""

from dagster import DagsterRun, DagsterRunStatus, RunsFilter

from rota.dagster.assets.ending import GOING, make_limits
from rota.dagster.assets.names import CONSUME, REBALANCE
from rota.dagster.private import QueuedRunCoordinator, SubmitRunContext
from rota.dagster.sensors.runs import UNFINISHED

ON_THEIR_WAY = [status for status in UNFINISHED if status != DagsterRunStatus.NOT_STARTED]  # what was submitted


class RunQueue(QueuedRunCoordinator):
    """Dagster's own, but for rebalances and consuming runs."""

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """The run, which is starting or in the queue. Raises as Dagster's launcher does; the run has then failed."""
        run = context.dagster_run
        if run.status != DagsterRunStatus.NOT_STARTED or not self._may_start(run):
            return super().submit_run(context)
        return self._instance.launch_run(run.run_id, context.workspace)

    def _may_start(self, run: DagsterRun) -> bool:
        if group := run.tags.get(REBALANCE):
            return not self._instance.get_runs_count(RunsFilter(tags={REBALANCE: group}, statuses=ON_THEIR_WAY))
        if CONSUME not in run.tags or self._instance.get_runs_count(RunsFilter(statuses=[DagsterRunStatus.QUEUED])):
            return False
        return not make_limits(self._instance, self._instance.get_runs(RunsFilter(statuses=GOING)))(run)
