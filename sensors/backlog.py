"""`<pipeline>__backlog`: launches a run for each worker that owns partitions with lag."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from rota.dagster.assets.failure import in_one_line
from rota.dagster.assets.names import INCARNATION, Names
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.dagster.sensors import runs
from rota.dagster.sensors.polling import PAUSE, count_places, poll
from rota.held import Held
from rota.ids import WORKER_TAG, worker_of
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.run.work import Work, WorkWatcher

ONCE = "dagster/max_retries"  # Dagster's tag of a run that crashed: how often Dagster retries it
FRESH = 3.0  # seconds after which the runs are read again from Dagster's storage


def make_backlog_sensor(pipeline: Pipeline, names: Names) -> dg.SensorDefinition:
    """Return the sensor. Law: an incarnation of a worker has at most one unfinished run, and a lost worker has none.

    The code server caches the logs of the indexes between ticks.
    """
    held = Held()

    @dg.sensor(
        name=names.backlog_sensor(pipeline.name),
        job_name=names.consume_job(pipeline.name),
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Watches the lag of pipeline {pipeline.name} and launches a run for each worker with lag.",
    )
    def tick(context: dg.SensorEvaluationContext, rota_zookeeper: ZooKeeperResource) -> dg.SensorResult | dg.SkipReason:
        from rota.registry import find_interval
        from rota.run.work import WorkWatcher

        mine = runs.Runs.of(context, names.consume_job(pipeline.name))
        with in_one_line(), rota_zookeeper.tree(pipeline.group) as tree:
            polls = Polls(mine, tree, pipeline, names, WorkWatcher(tree, pipeline, held=held))
            pause = max(PAUSE, find_interval([pipeline]))
            requests = poll(polls.poll, bool, count_places(context.instance), pause=pause)
        if not requests:
            return dg.SkipReason(f"no worker without a run has lag in {pipeline.name}")
        return dg.SensorResult(run_requests=requests)

    return tick


@dataclass(slots=True)
class Polls:
    """The polls of one tick.

    Invariant: a poll that launches a run reads the runs first. It reads them from Dagster's storage if, by ZooKeeper and the
    source, a worker may be without a run or is lost, and every `FRESH` seconds while runs are alive. For an idle pipeline it
    reads them once a tick, and polls ZooKeeper for changes.
    """

    mine: runs.Runs
    tree: "GroupState"
    pipeline: Pipeline
    names: Names
    watcher: "WorkWatcher"
    live: frozenset[str] = frozenset()  # the incarnations when the runs were last read
    busy: frozenset[str] = frozenset()  # the incarnations that had a run
    asked: float | None = None  # when the runs were last read, in monotonic seconds

    def poll(self) -> list[dg.RunRequest]:
        """Return the runs that are due."""
        self.watcher.poll()
        return list(self._find_launches()) if self._may_launch() else []

    def _may_launch(self) -> bool:
        """Return whether a run may be due that was not due when the runs were last read."""
        if self.asked is None or (self.busy and time.monotonic() - self.asked >= FRESH):
            return True
        live = self.watcher.lives.keys()
        if live != self.live or live <= self.busy:
            return live != self.live  # a run polls for its own incarnation, twice a second
        return any(one.incarnation not in self.busy for one in self._find_work())

    def _find_launches(self) -> Iterator[dg.RunRequest]:
        """Yield a run for each live incarnation with lag, or that awaits its first run, and without a run. Cancel the runs
        of lost incarnations.

        A run has no run_key: Dagster never launches a key again, even if its run failed.
        """
        if not self.tree.exists():  # the membership sensor creates the group
            return
        self.asked = time.monotonic()
        open_runs = self.mine.list_unfinished(self.tree)
        self.watcher.poll()  # after the runs were read: a new worker does not count as lost
        self.live = frozenset(self.watcher.lives)
        for run in open_runs:
            if (incarnation := run.tags.get(INCARNATION)) and incarnation not in self.live:
                self.mine.cancel(run)
        self.busy = self.live.intersection(run.tags.get(INCARNATION, "") for run in open_runs)
        if self.live <= self.busy:
            return
        for work in self._find_work():
            if work.incarnation not in self.busy and not self.mine.read_pause({INCARNATION: work.incarnation}):
                yield make_run_request(self.pipeline, self.names, work, self.tree.head().record.epoch)

    def _find_work(self) -> "Iterator[Work]":
        """Yield the work of each incarnation, and work without partitions for each one that awaits its first run while runs
        of others consume.
        """
        from rota.run.work import Work

        yield from self.watcher.find_work()
        for incarnation, live in self.watcher.lives.items() if self.busy else ():
            if live is not None and live.awaits_run:
                yield Work(incarnation, worker_of(incarnation), {})


def make_run_request(pipeline: Pipeline, names: Names, work: "Work", epoch: int) -> dg.RunRequest:
    """Return the launch of a run for one incarnation in this epoch.

    The config names its partitions, and no partition tag does. Dagster does not retry it: if it crashes, the sensor launches
    another run.
    """
    config = {"incarnation": work.incarnation, "partitions": list(work.lags)}
    tags = {INCARNATION: work.incarnation, WORKER_TAG: work.worker}
    return dg.RunRequest(
        run_config={"ops": {names.consume_op(pipeline.name): {"config": config}}},
        tags={**tags, ONCE: "0", **names.epoch_tags(pipeline.group, epoch)},
    )
