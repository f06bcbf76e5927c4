"""Dagster's queue of runs, in which a run waits only if it must.

Dagster's daemon launches queued runs once or twice a second. That adds up to a second until the partitions of a dead
worker are consumed again, and until the first file of an idle worker is read. So this queue starts some runs at once.

Laws:
1. A run of the rebalance job starts when it is submitted, unless another rebalance of its group is queued or running.
   Then it queues.
2. A consuming run starts when it is submitted, if no run is queued and Dagster's limits have room. Else it queues.
   Several runs that are submitted in one moment may exceed a limit together.
3. All other runs queue. A run is launched once, and never after it was cancelled. Dagster's limits count each run.

In dagster.yaml: `run_coordinator: {module: rota.dagster.run_queue, class: RunQueue}`, with the settings of Dagster's
own `run_queue` as its `config`. rota also works with Dagster's own queue, with these delays.
"""

from dagster import DagsterRun, DagsterRunStatus, RunsFilter

from rota.dagster.assets.ending import HAS_SLOT, make_limits
from rota.dagster.assets.names import CONSUME
from rota.dagster.private import QueuedRunCoordinator, SubmitRunContext
from rota.dagster.sensors.runs import UNFINISHED
from rota.ids import REBALANCE_TAG

ON_THEIR_WAY = [status for status in UNFINISHED if status != DagsterRunStatus.NOT_STARTED]  # submitted and not ended


class RunQueue(QueuedRunCoordinator):
    """Dagster's queue, except that rebalances and consuming runs may start at once."""

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """Return the run, which is starting or queued. Raises as Dagster's launcher does; the run has then failed."""
        run = context.dagster_run
        if run.status != DagsterRunStatus.NOT_STARTED or not self._may_start(run):
            return super().submit_run(context)
        return self._instance.launch_run(run.run_id, context.workspace)

    def _may_start(self, run: DagsterRun) -> bool:
        if group := run.tags.get(REBALANCE_TAG):
            return not self._instance.get_runs_count(RunsFilter(tags={REBALANCE_TAG: group}, statuses=ON_THEIR_WAY))
        if CONSUME not in run.tags or self._instance.get_runs_count(RunsFilter(statuses=[DagsterRunStatus.QUEUED])):
            return False
        return not make_limits(self._instance, self._instance.get_runs(RunsFilter(statuses=HAS_SLOT)))(run)
