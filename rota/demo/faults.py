"""The director of the demo's faults: strikes where it hurts most, a batch that is being written and not committed.

Law: a run is struck only while its own node is in `/runs`, an attempt folder of it is there, and no commit of it is in
the table's log; that it was so is checked again after the blow.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from rota.demo.page import Page, Run
from rota.demo.stage import Stage
from rota.demo.watch import PATIENCE, CommitSeen, RunSeen, Watch
from rota.errors import EnvironmentFailed

JUST_BEGUN = 0.5  # seconds: what is killed must not get to its commit between the look and the blow


@dataclass(frozen=True, slots=True)
class Killed:
    """A worker's process group was killed in the middle of a batch, and what came of it."""

    worker: str
    run_id: str
    partitions: tuple[str, ...]
    at: float
    seconds: float
    legs: Mapping[str, float]
    taken_by: str


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker came later and got its share."""

    worker: str
    at: float
    seconds: float
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Zombie:
    """A run was frozen past its session, overtaken, woken, and its write was refused."""

    run_id: str
    worker: str
    at: float
    woken: float
    overtaken_by: str
    refused: tuple[str, ...]


def in_the_middle(watch: Watch, begun: float = 3600.0) -> tuple[RunSeen, ...]:
    """The runs with an attempt folder there, for less than `begun` seconds, and no commit, as last looked."""
    fresh = [name for name, age in watch.attempts().items() if age < begun]
    return tuple(
        run
        for run in watch.runs.values()
        if not watch.committed(run.id) and any(name.startswith(f"{run.id}-") for name in fresh)
    )


def kill(stage: Stage, watch: Watch, page: Page) -> Killed:
    """SIGKILL to the process group of a worker in the middle of a batch; returns once others committed its partitions."""
    run = watch.until(
        lambda: next((r for r in in_the_middle(watch, JUST_BEGUN) if r.worker in stage.children), None),
        PATIENCE,
        "a run in the middle of its batch",
    )
    at = time.time()
    stage.strike(run.worker)
    watch.look()
    if watch.committed(run.id):
        raise EnvironmentFailed(f"Run {run.id} committed before its worker {run.worker} was dead. Run the demo again")
    owned = {p for p, owner in watch.owners().items() if owner == run.incarnation}

    def taken() -> CommitSeen | None:
        return next((c for c in watch.commits if c.at > at and c.run_id != run.id and owned & c.ranges.keys()), None)

    commit = watch.until(taken, PATIENCE, f"a commit of a partition of the dead {run.worker}")
    legs = _legs(watch, page.runs(), run.incarnation, at, commit)
    taker = watch.whose[commit.run_id].worker if commit.run_id in watch.whose else "?"
    return Killed(run.worker, run.id, tuple(sorted(owned)), at, commit.at - at, legs, taker)


def _legs(watch: Watch, runs: Mapping[str, Run], dead: str, at: float, commit: CommitSeen) -> dict[str, float]:
    """From the kill to the commit: expiry, tick, rebalance, tick, launch, query; together the whole."""
    gone = watch.gone.get(dead, at)
    epoch = next((t for _, t in sorted(watch.epochs.items()) if t >= gone), gone)
    rebalance = max((r.created for r in runs.values() if "rebalance" in r.job and r.created <= epoch), default=gone)
    created = runs[commit.run_id].created if commit.run_id in runs else epoch
    registered = watch.registered.get(commit.run_id, commit.at)
    marks = [at, gone, rebalance, epoch, created, registered, commit.at]
    names = ("expiry", "tick", "rebalance", "second tick", "launch", "query")
    return {name: max(0.0, b - a) for name, a, b in zip(names, marks[:-1], marks[1:], strict=True)}


def join(watch: Watch, worker: str) -> Joined:
    """Waits for a worker, started before, to be live and to commit."""
    watch.until(lambda: worker in watch.workers(), PATIENCE, f"{worker} to be live")
    live = max(at for incarnation, at in watch.live.items() if incarnation.startswith(f"{worker}@"))

    def first() -> CommitSeen | None:
        return next(
            (c for c in watch.commits if c.run_id in watch.whose and watch.whose[c.run_id].worker == worker), None
        )

    commit = watch.until(first, PATIENCE, f"the first commit of {worker}")
    return Joined(worker, live, commit.at - live, tuple(sorted(commit.ranges)))


@dataclass(frozen=True, slots=True)
class Frozen:
    """A run that stands still, and its process."""

    run: RunSeen
    pid: int
    at: float


def freeze(watch: Watch, page: Page, feed: Callable[[], None]) -> Frozen:
    """SIGSTOP to the process of a run in the middle of a batch; one that committed under our hands is let go.

    `feed` is called whenever no run is left to be caught: it gives the workers something to do.
    """
    pids: dict[str, int] = {}

    def held() -> Frozen | None:
        if not watch.runs:
            feed()
        for run in watch.runs.values():  # asked early: a batch is short
            if run.id not in pids and (pid := page.pid(run.id)):
                pids[run.id] = pid
        caught = [r for r in in_the_middle(watch) if r.id in pids]
        if not caught:
            return None
        run = caught[0]
        os.kill(pids[run.id], signal.SIGSTOP)
        at = time.time()
        watch.look()
        if not watch.committed(run.id):
            return Frozen(run, pids[run.id], at)
        os.kill(pids[run.id], signal.SIGCONT)
        return None

    return watch.until(held, PATIENCE, "a run to freeze in the middle of its batch")


def wake(watch: Watch, frozen: Frozen, partition: str) -> Zombie:
    """Waits until somebody else committed `partition` of the frozen run, wakes it, waits until its write is refused."""

    def overtaken() -> CommitSeen | None:
        later = (c for c in watch.commits if c.at > frozen.at and c.run_id != frozen.run.id)
        return next((c for c in later if partition in c.ranges), None)

    try:
        commit = watch.until(overtaken, PATIENCE, f"somebody to overtake the frozen run {frozen.run.id}")
    finally:
        woken = time.time()
        with suppress(ProcessLookupError):
            os.kill(frozen.pid, signal.SIGCONT)
    refused = watch.until(lambda: watch.refused(frozen.run.id), PATIENCE, "the woken run's write to be refused")
    taker = watch.whose[commit.run_id].worker if commit.run_id in watch.whose else "?"
    return Zombie(frozen.run.id, frozen.run.worker, frozen.at, woken, taker, tuple(sorted(refused)))
