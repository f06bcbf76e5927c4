"""Observes a group from outside: live workers, epochs, runs and the commits in the table's log, each with its time.

Law: it only reads. A commit has the time of the table's log. All other times are the wall clock of the first observation
that found the thing.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from rota.coordination.client import connect
from rota.coordination.group_state import GroupState
from rota.coordination.records import Refusal
from rota.demo import deltalog
from rota.demo.verify import ranges
from rota.errors import EnvironmentFailed

if TYPE_CHECKING:
    from pyarrow import fs

T = TypeVar("T")
POLL_INTERVAL = 0.2  # seconds between two observations; on a small machine they slow the observed processes
GIVEN_UP = 300.0  # seconds after which the demo fails; each wait takes a fraction of that


@dataclass(frozen=True, slots=True)
class RunSeen:
    """A consuming run, by its node in `/runs`."""

    id: str
    incarnation: str
    partitions: tuple[str, ...]

    @property
    def worker(self) -> str:
        """Return its worker."""
        return self.incarnation.partition("@")[0]


@dataclass(frozen=True, slots=True)
class CommitSeen:
    """A version of the table with rows: its run, its attempt, and when it was committed."""

    version: int
    at: float
    run_id: str
    attempt: str
    ranges: dict[str, tuple[int, int]]


@dataclass(slots=True)
class Observer:
    """The results of all observations. `observe` adds one; `wait_until` observes until a condition is true."""

    tree: GroupState
    main: "fs.FileSystem"  # the folder of the table
    check: Callable[[], None] = lambda: None  # called at each observation; raises if a process of the demo ended
    live: dict[str, float] = field(default_factory=dict)  # incarnation -> since
    gone: dict[str, float] = field(default_factory=dict)
    epochs: dict[int, float] = field(default_factory=dict)
    runs: dict[str, RunSeen] = field(default_factory=dict)  # registered now
    registered: dict[str, float] = field(default_factory=dict)  # run id -> when first seen in /runs
    whose: dict[str, RunSeen] = field(default_factory=dict)  # every run ever seen
    commits: list[CommitSeen] = field(default_factory=list)
    folders: dict[str, float] = field(default_factory=dict)  # attempt folder -> first seen
    version: int = -1

    @classmethod
    @contextmanager
    def connect_to(cls, hosts: str, main: "fs.FileSystem", check: Callable[[], None]) -> "Iterator[Observer]":
        """Yield an observer of group `default` at these hosts, with its own connection, and of the log of the table `main`.
        `check` is called at each observation."""
        with connect(hosts, 10.0) as store:
            yield cls(GroupState(store, "default"), main, check)

    def observe(self) -> None:
        """Read everything once. Raises the errors of `check`, and CoordinationError."""
        self.check()
        now = time.time()
        if not self.tree.exists():
            return  # the membership sensor has not founded the group yet
        there = {live.incarnation for live in self.tree.live()}
        for incarnation in there - self.live.keys():
            self.live[incarnation] = now
        for incarnation in self.live.keys() - there - self.gone.keys():
            self.gone[incarnation] = now
        self.epochs.setdefault(self.tree.head().record.epoch, now)
        self.runs = {r.run_id: RunSeen(r.run_id, r.incarnation, tuple(r.partitions)) for r in self.tree.runs()}
        for run in self.runs.values():
            self.registered.setdefault(run.id, now)
            self.whose[run.id] = run
        for commit in deltalog.commits(self.main, self.version):
            self.version = commit.version
            if covered := ranges(commit):
                whose, attempt = (str(commit.info.get(f"rota.{one}")) for one in ("run", "attempt"))
                self.commits.append(CommitSeen(commit.version, commit.at, whose, attempt, covered))

    def wait_until(self, what: Callable[[], T | None], timeout: float, waiting_for: str) -> T:
        """Observe until `what()` is true, and return its value. Raises EnvironmentFailed with `waiting_for` after `timeout`
        seconds."""
        deadline = time.monotonic() + timeout
        while True:
            self.observe()
            if value := what():
                return value
            if time.monotonic() > deadline:
                raise EnvironmentFailed(f"Waited {timeout:g} s for {waiting_for}")
            time.sleep(POLL_INTERVAL)

    def owners(self) -> dict[str, str | None]:
        """Return partition -> the incarnation in its own record."""
        return {p: own.incarnation for p, own in self.tree.owned().items()}

    def holdings(self) -> Counter[str]:
        """Return worker -> the number of own records that name it."""
        return Counter(owner.partition("@")[0] for owner in self.owners().values() if owner)

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the refused writes."""
        return self.tree.refusals().ring

    def find_refused(self, run_id: str) -> set[str]:
        """Return the partitions with a refused write of this run."""
        return {r.partition for r in self.refusals() if r.run_id == run_id}

    def workers(self) -> set[str]:
        """Return the workers that are live now."""
        return {i.partition("@")[0] for i in self.live.keys() - self.gone.keys()}

    def offsets(self) -> dict[str, int]:
        """Return partition -> its next offset, by the table's log."""
        ends: dict[str, int] = {}
        for commit in self.commits:
            for partition, (_, end) in commit.ranges.items():
                ends[partition] = max(end, ends.get(partition, 0))
        return ends

    def count_consumed(self) -> int:
        """Return the number of offsets that the table's log covers."""
        return sum(self.offsets().values())

    def has_committed(self, attempt: str) -> bool:
        """Return whether the table has the commit of this attempt."""
        return any(c.attempt == attempt for c in self.commits)

    def attempts(self) -> dict[str, float]:
        """Return attempt folder -> the seconds since it was first observed."""
        from pyarrow import fs

        now = time.time()
        for one in self.main.get_file_info(fs.FileSelector("data", allow_not_found=True)):
            self.folders.setdefault(one.base_name, now)
        return {name: now - at for name, at in self.folders.items()}
