"""Causes the demo's faults when they could do most damage: while a batch is written and not yet committed.

Law: a fault hits a run only while the run's node is in `/runs`, the folder of its newest attempt exists, and the table's log
has no commit of that attempt. The log is read again after the fault.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate

from rota.demo.observer import GIVEN_UP, CommitSeen, Observer, RunSeen
from rota.errors import EnvironmentFailed
from rota.local.page import DagsterPage, DagsterRun
from rota.local.stack import Stack

JUST_BEGUN = 0.5  # seconds since an attempt began: it must not commit between the observation and the signal


class KilledTooLate(EnvironmentFailed):
    """A worker was killed after its batch had been committed."""


@dataclass(frozen=True, slots=True)
class KillFigures:
    """The kill of a worker in the middle of a batch: `seconds` until `taken_by` committed a partition of it, in `legs`:
    expiry, tick, rebalance, second tick, launch, query; if workers decide alone: expiry, claim, tick, launch, query."""

    worker: str
    run_id: str
    partitions: tuple[str, ...]
    at: float
    seconds: float
    legs: Mapping[str, float]
    taken_by: str


@dataclass(frozen=True, slots=True)
class JoinFigures:
    """A worker that joined later: `seconds` from its live node to its first commit."""

    worker: str
    at: float
    seconds: float
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ZombieFigures:
    """A run that was frozen at `at`, overtaken, and woken at `woken`; `refused`: the partitions that it could not write."""

    run_id: str
    worker: str
    at: float
    woken: float
    overtaken_by: str
    refused: tuple[str, ...]


def find_uncommitted(observer: Observer, begun: float = 3600.0) -> dict[str, RunSeen]:
    """Return attempt -> run, for the runs of the last observation whose newest attempt is younger than `begun` seconds and
    not committed."""
    ages, found = observer.attempts(), {}
    for run in observer.runs.values():
        mine = [name for name in ages if name.startswith(f"{run.id}-")]
        newest = min(mine, key=ages.__getitem__, default="")
        if newest and ages[newest] < begun and not observer.has_committed(newest):
            found[newest] = run
    return found


def kill_worker(stack: Stack, observer: Observer, page: DagsterPage) -> KillFigures:
    """Send SIGKILL to the process group of a worker in the middle of a batch, and wait until another one committed for it.
    Raises EnvironmentFailed; KilledTooLate if the batch was committed first."""

    def caught() -> tuple[str, RunSeen] | None:
        found = find_uncommitted(observer, JUST_BEGUN)
        return next(((attempt, run) for attempt, run in found.items() if run.worker in stack.children), None)

    attempt, run = observer.wait_until(caught, GIVEN_UP, "a run in the middle of its batch")
    at = time.time()
    stack.kill(run.worker)
    observer.observe()
    if observer.has_committed(attempt):
        raise KilledTooLate(f"Run {run.id} committed before its worker {run.worker} was dead. Run the demo again")
    owned = {p for p, owner in observer.owners().items() if owner == run.incarnation}
    alone = observer.tree.meta().protocol != "assigned"
    claimed: dict[str, float] = {}

    def taken() -> CommitSeen | None:
        for partition, owner in observer.owners().items() if alone else ():
            if partition in owned and owner not in (None, run.incarnation):
                claimed.setdefault(partition, time.time())
        return next((c for c in observer.commits if c.at > at and c.run_id != run.id and owned & c.ranges.keys()), None)

    commit = observer.wait_until(taken, GIVEN_UP, f"a commit of a partition of the dead {run.worker}")
    runs, gone = page.read_runs(), observer.gone.get(run.incarnation, at)
    if alone:
        ends = {"expiry": gone, "claim": min((claimed[p] for p in commit.ranges if p in claimed), default=gone)}
    else:
        ends = _find_epoch(observer, runs, gone)
    ends["tick" if alone else "second tick"] = runs[commit.run_id].created if commit.run_id in runs else gone
    ends |= {"launch": observer.registered.get(commit.run_id, commit.at), "query": commit.at}
    taker = observer.whose[commit.run_id].worker if commit.run_id in observer.whose else "?"
    return KillFigures(run.worker, run.id, tuple(sorted(owned)), at, commit.at - at, _measure_legs(at, ends), taker)


def _find_epoch(observer: Observer, runs: Mapping[str, DagsterRun], gone: float) -> dict[str, float]:
    """Return the ends of the steps until an epoch without the dead worker was published."""
    epoch = next((t for _, t in sorted(observer.epochs.items()) if t >= gone), gone)
    rebalance = max((r.created for r in runs.values() if "rebalance" in r.job and r.created <= epoch), default=gone)
    return {"expiry": gone, "tick": rebalance, "rebalance": epoch}


def _measure_legs(at: float, ends: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each step, given its end; their sum is the whole. If a running run takes the partition over
    without a launch, the end of the launch is before the end of the step before it, and counts 0 s."""
    marks = list(accumulate([at, *ends.values()], max))
    return {name: b - a for name, a, b in zip(ends, marks[:-1], marks[1:], strict=True)}


def wait_for_join(observer: Observer, worker: str) -> JoinFigures:
    """Wait until a worker that was started before is live and commits. Raises EnvironmentFailed."""
    observer.wait_until(lambda: worker in observer.workers(), GIVEN_UP, f"{worker} to be live")
    live = max(at for incarnation, at in observer.live.items() if incarnation.startswith(f"{worker}@"))

    def first() -> CommitSeen | None:
        return next(
            (c for c in observer.commits if c.run_id in observer.whose and observer.whose[c.run_id].worker == worker),
            None,
        )

    commit = observer.wait_until(first, GIVEN_UP, f"the first commit of {worker}")
    return JoinFigures(worker, live, commit.at - live, tuple(sorted(commit.ranges)))


@dataclass(frozen=True, slots=True)
class FrozenRun:
    """A run whose process is stopped."""

    run: RunSeen
    pid: int
    at: float


def freeze_run(observer: Observer, page: DagsterPage, feed: Callable[[], None]) -> FrozenRun:
    """Send SIGSTOP to the process of a run in the middle of a batch; a run that committed meanwhile is continued.

    `feed` is called while there is no run: it lands files for the next one. Raises EnvironmentFailed."""
    pids: dict[str, int] = {}

    def held() -> FrozenRun | None:
        if not observer.runs:
            feed()
        for run in observer.runs.values():  # read the pid early, because a batch is short
            if run.id not in pids and (pid := page.find_pid(run.id)):
                pids[run.id] = pid
        caught = [(attempt, run) for attempt, run in find_uncommitted(observer).items() if run.id in pids]
        if not caught:
            return None
        attempt, run = caught[0]
        os.kill(pids[run.id], signal.SIGSTOP)
        at = time.time()
        observer.observe()
        if not observer.has_committed(attempt):
            return FrozenRun(run, pids[run.id], at)
        os.kill(pids[run.id], signal.SIGCONT)
        return None

    return observer.wait_until(held, GIVEN_UP, "a run to freeze in the middle of its batch")


def wake_run(observer: Observer, frozen: FrozenRun, partition: str) -> ZombieFigures:
    """Wait until another run committed `partition` of the frozen run, wake the frozen run, and wait until its write is
    refused. Raises EnvironmentFailed."""

    def overtaken() -> CommitSeen | None:
        later = (c for c in observer.commits if c.at > frozen.at and c.run_id != frozen.run.id)
        return next((c for c in later if partition in c.ranges), None)

    try:
        commit = observer.wait_until(overtaken, GIVEN_UP, f"another run to overtake the frozen run {frozen.run.id}")
    finally:
        woken = time.time()
        with suppress(ProcessLookupError):
            os.kill(frozen.pid, signal.SIGCONT)
    refused = observer.wait_until(
        lambda: observer.find_refused(frozen.run.id), GIVEN_UP, "the woken run's write to be refused"
    )
    taker = observer.whose[commit.run_id].worker if commit.run_id in observer.whose else "?"
    return ZombieFigures(frozen.run.id, frozen.run.worker, frozen.at, woken, taker, tuple(sorted(refused)))
