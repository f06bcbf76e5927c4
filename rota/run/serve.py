"""A run serves its worker: it consumes, polls, and consumes again, until it has a reason to end.

Laws:
1. Each batch is the same as in a run of one batch: `consume` registers the run for its partitions, reads the rights,
   claims, commits and writes the checkpoint. Between two batches no node of the run names a partition, so that no
   handover waits for the run.
2. The run ends between two batches, never within one. It ends when nothing came for `linger` seconds, when `max_run`
   seconds are over, when its worker is gone, or leaves and owns no partition of the pipeline any more, when
   `find_reason` returns a reason, or when all its partitions are parked. If it parked a partition for the first time,
   it ends once it has served `linger` seconds: Dagster shows a partition as failed only after the run has ended.
3. A run without partitions opens Spark and the table and lets Spark rehearse first, and then shows the worker that it is
   ready.
4. A poll returns only partitions that the run's worker may work on at that moment. `consume` checks them again.
5. Polling takes at most a quarter of the time. A pause ends early if files settle during it: the next poll finds them.
   While the worker takes over partitions, pauses are shorter, unless polls cost money.
   Time that a caller spends on reporting a commit counts as pause.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rota.coordination.group_state import GroupState
from rota.coordination.membership import register_run
from rota.dataplane.ports import Ports
from rota.ids import worker_of
from rota.pipeline import Pipeline
from rota.registry import find_interval
from rota.run.consume import CommittedBatch, Event, ParkedPartition, consume
from rota.run.work import WorkWatcher

POLL_INTERVAL = 0.5  # seconds from a poll, or from the commit that follows it, to the next poll
HANDOVER = 3.0  # seconds in which a partition that the target gives the worker is expected to be free
HANDOVER_INTERVAL = 0.1  # seconds between two polls meanwhile
POLL_DECAY = 1 / 8  # pause / idle time if polls cost money; the pause is at most the source's interval


@dataclass(frozen=True, slots=True)
class RunLimits:
    """How long a run serves, in seconds. With `linger` 0 it serves one batch."""

    linger: float = 30.0
    max_run: float = 300.0


@dataclass(frozen=True, slots=True)
class Rest:
    """The run has nothing to do until its next poll."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The run has ended, for `reason`."""

    reason: str


def serve(
    tree: GroupState,
    pipeline: Pipeline,
    incarnation: str,
    partitions: Sequence[str],
    run_id: str,
    ports: Ports,
    limits: RunLimits,
    *,
    wait: Callable[[float], None] = time.sleep,
    listen: Callable[[], None] = lambda: None,
    find_reason: Callable[[], str] = str,
) -> Iterator[Event | Rest | RunEnd]:
    """Consume `partitions`, then what each poll finds. Without partitions, prepare for those that the worker will own.

    Args:
        limits: how long the run serves.
        wait: lets seconds pass.
        listen: lets the next `wait` end early if the target of the worker changes.
        find_reason: returns a reason to end the run; empty if there is none.

    Yields:
        the events of `consume`, a Rest before each pause, and a RunEnd at the end.

    Raises:
        the errors of `consume`.
    """
    began = came = since = ports.clock()
    work, pause, least, longest = tuple(partitions), POLL_INTERVAL, 0.0, find_interval([pipeline])
    ready: list[float] = []  # when files that the last poll found too new are ready
    parked = newly = committed = False
    watcher = WorkWatcher(tree, pipeline, ports.source, incarnation)
    awaited: float | None = None  # since when the target names partitions that the worker does not own yet
    if not work:
        watcher.poll()
        if (
            live := watcher.lives.get(incarnation)
        ) is not None:  # else there is no Spark to open, and the run ends soon
            stand_by(tree, incarnation, live.endpoint, run_id, ports)
    while True:
        if work:
            left = max(0.0, began + limits.max_run - ports.clock())
            for event in consume(tree, pipeline, incarnation, work, run_id, ports, left):
                if isinstance(event, ParkedPartition):
                    parked, newly = True, newly or event.failures == 1
                if isinstance(event, CommittedBatch):
                    came = since = ports.clock()
                    committed = True
                yield event
        if reason := _find_end(began, came, ports.clock(), limits, newly):
            yield RunEnd(reason)
            return
        yield Rest()
        now = ports.clock()
        wait(max(0.0, since + least - now, _shorten(since + pause, ready) - now))
        looked = ports.clock()
        listen()
        watcher.poll()
        found = watcher.find_work()
        if reason := find_reason() or _find_leave(watcher, incarnation):
            yield RunEnd(reason)
            return
        work = tuple(found[0].lags) if found else ()
        if parked and not committed and not work:
            yield RunEnd("all that it worked on is parked")
            return
        since = ports.clock()
        least = 3 * (since - looked)
        ready = [since + one for one in watcher.seen.ready_in]
        pause = max(POLL_INTERVAL, min(longest, (looked - came) * POLL_DECAY), least)
        awaited = (looked if awaited is None else awaited) if watcher.awaits_partitions() else None
        if awaited is not None and looked - awaited < HANDOVER and longest <= POLL_INTERVAL:
            pause = max(HANDOVER_INTERVAL, least)


def stand_by(tree: GroupState, incarnation: str, endpoint: str | None, run_id: str, ports: Ports) -> None:
    """Open what the first batch needs, then create the run's node without partitions: the worker takes its first
    partitions when it sees the node. Raises EnvironmentFailed, Unavailable.
    """
    ports.job.rehearse(endpoint=endpoint, run_id=run_id)
    ports.main.open()
    register_run(tree, run_id, incarnation, ())


def _shorten(end: float, ready: Iterable[float]) -> float:
    """Return the last time up to `end`, the end of the pause, at which a file is ready; `end` if there is none."""
    return max((at for at in ready if at <= end), default=end)


def _find_end(began: float, came: float, now: float, limits: RunLimits, newly: bool) -> str:
    """Return why the run's time is over; empty if it is not. `newly`: the run parked a partition for the first time."""
    if now - came >= limits.linger:
        return f"nothing came for {limits.linger:g} s"
    if newly and now - began >= limits.linger:
        return "a partition was parked, which shows once the run has ended"
    return f"it served for {limits.max_run:g} s" if now - began >= limits.max_run else ""


def _find_leave(watcher: WorkWatcher, incarnation: str) -> str:
    """Return why the worker does no more work; empty if it continues. A worker that leaves continues until the next owners
    take over: otherwise nothing would be consumed while the controller decides."""
    if (live := watcher.lives.get(incarnation)) is None:
        return f"{incarnation} is gone, or what it announces cannot be read"
    return f"{worker_of(incarnation)} leaves" if live.leaving and not watcher.owns_partitions() else ""
