"""What a decision reads and what it says, as frozen values.

Law: same content, same bytes out, whatever the order of workers and partitions in the input. `Snapshot`, `Assignment`
and `Plan` hold columns (ids once, ordered as bytes, then integer arrays); `Worker`, `Partition` and `Move` are small
views made on demand, because a million Python objects cost more than the plan may.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from rota.errors import AssignmentError

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NOBODY: Final = -1  # an owner or a target code; codes below it name workers that are gone
UNLIMITED: Final = 2**31 - 1
STATES: Final = ("active", "cordoned", "draining")
USAGE: Final = ("cpu", "memory", "bandwidth_in", "bandwidth_out", "rate", "throughput")


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker as a decision sees it; `usage` maps names of `USAGE` to numbers, `max_partitions` None is no cap."""

    id: str
    incarnation: str | None = None
    capacity: float = 1.0
    zone: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    state: str = "active"
    usage: Mapping[str, float] | None = None
    max_partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """One source partition; `requires` are labels that its worker must carry, `rate` and `throughput` per second."""

    id: str
    source: str = ""
    load: float = 1.0
    requires: Mapping[str, str] = field(default_factory=dict)
    pin: str | None = None
    rate: float | None = None
    throughput: float | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that is placed and not where it was; `giver` None: it had no owner."""

    partition: str
    giver: str | None
    taker: str
    load: float
    reason: str


@dataclass(frozen=True, slots=True)
class Unassigned:
    """A partition that nobody gets now, and why."""

    partition: str
    giver: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Measures:
    """What a plan costs and reaches. Imbalance is max/mean utilization, None without workers; `reason` says why
    nothing moves, or what was approximated, and is empty otherwise."""

    imbalance_before: float | None
    imbalance_after: float | None
    lower_bound: float | None
    moves: int
    unavoidable_moves: int
    placements: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """How much may move at once: `budget` voluntary moves a plan (None: no bound), `cooldown` seconds between two
    voluntary plans, `grace` seconds in which a worker that is gone may return to its partitions."""

    budget: int | None = None
    cooldown: float = 0.0
    grace: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Team:
    """Columns over workers: `cap` is `max_partitions` or UNLIMITED; `plain` if all are active, alike and uncapped."""

    capacity: Floats
    state: NDArray[np.int8]  # an index into STATES
    cap: Ints
    plain: bool

    @classmethod
    def of(cls, workers: Sequence[Worker]) -> "Team":
        """The columns of these workers, in their order."""
        size = len(workers)
        capacity = np.fromiter((w.capacity for w in workers), np.float64, size)
        state = np.fromiter((STATES.index(w.state) for w in workers), np.int8, size)
        limits = (UNLIMITED if w.max_partitions is None else w.max_partitions for w in workers)
        cap = np.fromiter(limits, np.int64, size)
        alike = size > 0 and not state.any() and bool((capacity == capacity[0]).all())
        return cls(capacity, state, cap, alike and bool((cap == UNLIMITED).all()))

    @property
    def active(self) -> Bools:
        """Workers that may take and keep."""
        return np.asarray(self.state == 0)

    @property
    def cordoned(self) -> Bools:
        """Workers that keep and do not take."""
        return np.asarray(self.state == 1)

    @property
    def draining(self) -> Bools:
        """Workers that keep nothing."""
        return np.asarray(self.state == 2)


Kind = tuple[tuple[tuple[str, str], ...], str | None]  # what a partition asks of its worker: required labels, pin


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The immutable input of every decision, ids ordered as bytes once.

    Columns over partitions: `owner` is an index into `workers`, NOBODY, or -2-k for `gone[k]`; `source` and `kind`
    index `sources` and `kinds`; `rate` and `throughput` are NaN where unknown. `absences` says since when a gone
    worker is missed, in the same seconds as `now`.
    """

    workers: tuple[Worker, ...]
    team: Team
    partition_ids: Sequence[str]
    owner: Codes
    load: Floats
    source: Codes
    sources: tuple[str, ...]
    kind: Codes
    kinds: tuple[Kind, ...]
    rate: Floats
    throughput: Floats
    gone: tuple[str, ...] = ()
    epoch: int = 0
    now: float = 0.0
    absences: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        workers: Iterable[Worker],
        partitions: Iterable[Partition],
        owners: Mapping[str, str],
        epoch: int = 0,
        now: float = 0.0,
        absences: Mapping[str, float] | None = None,
    ) -> "Snapshot":
        """The snapshot of these values. Raises AssignmentError on a duplicate id or an owner of an unknown partition."""
        team = tuple(sorted(workers, key=lambda w: w.id.encode()))
        parts = sorted(partitions, key=lambda p: p.id.encode())
        place = _places("worker", [w.id for w in team])
        row = _places("partition", [p.id for p in parts])
        gone = tuple(sorted({w for w in owners.values() if w not in place}, key=str.encode))
        code = place | {w: -2 - k for k, w in enumerate(gone)}
        owner = np.full(len(parts), NOBODY, np.int32)
        for partition, worker in owners.items():
            if partition not in row:
                raise AssignmentError(f"owners names the unknown partition {partition!r}. Add it to partitions")
            owner[row[partition]] = code[worker]
        sources = tuple(sorted({p.source for p in parts}, key=str.encode))
        source_code = {s: i for i, s in enumerate(sources)}
        wants: list[Kind] = [(tuple(sorted(p.requires.items())) if p.requires else (), p.pin) for p in parts]
        kinds = tuple(sorted(set(wants), key=lambda k: (k[0], k[1] is not None, k[1] or "")))
        kind_code = {k: i for i, k in enumerate(kinds)}
        return cls(
            workers=team,
            team=Team.of(team),
            partition_ids=tuple(p.id for p in parts),
            owner=owner,
            load=np.fromiter((p.load for p in parts), np.float64, len(parts)),
            source=np.fromiter((source_code[p.source] for p in parts), np.int32, len(parts)),
            sources=sources,
            kind=np.fromiter((kind_code[k] for k in wants), np.int32, len(parts)),
            kinds=kinds,
            rate=_optional([p.rate for p in parts]),
            throughput=_optional([p.throughput for p in parts]),
            gone=gone,
            epoch=epoch,
            now=now,
            absences=dict(absences or {}),
        )

    @classmethod
    def of_columns(
        cls,
        workers: Iterable[Worker],
        partition_ids: Sequence[str],
        owner: Codes,
        source: Codes | None = None,
        sources: tuple[str, ...] = ("",),
        gone: tuple[str, ...] = (),
    ) -> "Snapshot":
        """A snapshot of alike partitions (load 1, no wishes) from columns that are already ordered by id as bytes."""
        size = len(partition_ids)
        unknown = np.full(size, np.nan)
        team = tuple(workers)
        return cls(
            workers=team,
            team=Team.of(team),
            partition_ids=partition_ids,
            owner=owner,
            load=np.ones(size),
            source=np.zeros(size, np.int32) if source is None else source,
            sources=sources,
            kind=np.zeros(size, np.int32),
            kinds=(((), None),),
            rate=unknown,
            throughput=unknown,
            gone=gone,
        )

    def name(self, code: int) -> str | None:
        """The worker id of an owner code; None for NOBODY."""
        if code == NOBODY:
            return None
        return self.workers[code].id if code >= 0 else self.gone[-2 - code]

    def partition(self, index: int) -> Partition:
        """The small view of one partition."""
        requires, pin = self.kinds[self.kind[index]]
        rate, throughput = float(self.rate[index]), float(self.throughput[index])
        return Partition(
            id=self.partition_ids[index],
            source=self.sources[self.source[index]],
            load=float(self.load[index]),
            requires=dict(requires),
            pin=pin,
            rate=None if np.isnan(rate) else rate,
            throughput=None if np.isnan(throughput) else throughput,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """What should hold: `target` is an index into the snapshot's workers for each partition, or NOBODY."""

    snapshot: Snapshot
    target: Codes

    def partitions_of(self, worker: str) -> tuple[str, ...]:
        """The partitions of one worker, ordered as bytes; () for an unknown one."""
        ids = self.snapshot.partition_ids
        for code, candidate in enumerate(self.snapshot.workers):
            if candidate.id == worker:
                return tuple(ids[i] for i in np.flatnonzero(self.target == code).tolist())
        return ()

    def as_dict(self) -> dict[str, tuple[str, ...]]:
        """Worker -> its partitions; every active worker has an entry, also an empty one."""
        workers, ids = self.snapshot.workers, self.snapshot.partition_ids
        order = np.argsort(self.target, kind="stable")
        ends = np.searchsorted(self.target[order], np.arange(len(workers) + 1)).tolist()
        rows = order.tolist()
        return {
            worker.id: tuple(ids[i] for i in rows[ends[code] : ends[code + 1]])
            for code, worker in enumerate(workers)
            if worker.state == "active" or ends[code] < ends[code + 1]
        }

    def owner_of(self, partition: str) -> str | None:
        """The worker that should hold `partition`; None if nobody, or if there is no such partition."""
        ids = self.snapshot.partition_ids
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if ids[middle].encode() < partition.encode() else (low, middle)
        if low == len(ids) or ids[low] != partition:
            return None
        return self.snapshot.name(int(self.target[low]))


View = TypeVar("View")


class Lazy(Sequence[View], Generic[View]):
    """A read-only sequence that makes its items when they are asked for."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def at(self, index: int) -> View:
        """The item at a valid, non-negative index."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> View: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[View]: ...
    def __getitem__(self, index: int | slice) -> View | Sequence[View]:
        if isinstance(index, slice):
            return [self.at(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self.at(index % len(self))

    def __iter__(self) -> Iterator[View]:
        return (self.at(i) for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A target assignment and the ordered moves that lead to it; what is printed is exactly what is published.

    `due` is the time (in the snapshot's seconds) at which a decision that waits must be looked at again; `memory` is
    JSON-able and goes into the next call.
    """

    assignment: Assignment
    moves: Sequence[Move]
    unassigned: Sequence[Unassigned]
    measures: Measures
    due: float | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)


def _places(kind: str, ids: list[str]) -> dict[str, int]:
    places = {name: i for i, name in enumerate(ids)}
    if len(places) < len(ids):
        twice = next(name for i, name in enumerate(ids) if places[name] != i)
        raise AssignmentError(f"Two {kind}s have the id {twice!r}. Each id stands once")
    return places


def _optional(values: list[float | None]) -> Floats:
    return np.fromiter((np.nan if v is None else v for v in values), np.float64, len(values))
