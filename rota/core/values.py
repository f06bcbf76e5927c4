"""The frozen values that a decision reads and returns.

Law: equal content gives equal bytes, whatever the order of workers and partitions in the input.

`Snapshot`, `Assignment` and `Plan` hold columns: the ids once, ordered as bytes, then arrays of numbers. `Worker`,
`Partition` and `Move` are small objects that are created on demand: to create a million takes longer than the plan.
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

UNOWNED: Final = -1  # the code of a partition without owner; lower codes stand for workers that are gone
UNLIMITED: Final = 2**31 - 1
STATES: Final = ("active", "cordoned", "draining")
USAGE: Final = ("cpu", "memory", "bandwidth_in", "bandwidth_out", "rate", "throughput")


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker. `capacity` is a relative share. The keys of `usage` are of `USAGE`. `max_partitions` None is no cap."""

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
    """One source partition. Its worker must carry the labels `requires`. `rate` is rows and `throughput` bytes a second."""

    id: str
    source: str = ""
    load: float = 1.0
    requires: Mapping[str, str] = field(default_factory=dict)
    pin: str | None = None
    rate: float | None = None
    throughput: float | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that gets the owner `to_worker`. `from_worker` is the owner before, None if there was none."""

    partition: str
    from_worker: str | None
    to_worker: str
    load: float
    reason: str


@dataclass(frozen=True, slots=True)
class Unassigned:
    """A partition that no worker gets now, and why. `from_worker` is the owner before, None if there was none."""

    partition: str
    from_worker: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Measures:
    """The cost and the result of a plan. An imbalance is max/mean utilization, None without workers.

    `reason` states why nothing moves, why moves wait, or what was approximated; otherwise it is empty.
    """

    imbalance_before: float | None
    imbalance_after: float | None
    lower_bound: float | None
    moves: int
    unavoidable_moves: int
    placements: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits on moves: at most `budget` voluntary moves in a plan (None: no bound), and at least `cooldown` seconds
    between two plans with voluntary moves. A gone worker keeps its partitions for `grace` seconds."""

    budget: int | None = None
    cooldown: float = 0.0
    grace: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Team:
    """The workers as columns. `cap` is `max_partitions` or UNLIMITED. `plain`: all are active, have equal capacity and no
    cap."""

    capacity: Floats
    state: NDArray[np.int8]  # an index into STATES
    cap: Ints
    plain: bool

    @classmethod
    def of(cls, workers: Sequence[Worker]) -> "Team":
        """Return the columns of these workers, in the order given."""
        size = len(workers)
        capacity = np.fromiter((w.capacity for w in workers), np.float64, size)
        state = np.fromiter((STATES.index(w.state) for w in workers), np.int8, size)
        limits = (UNLIMITED if w.max_partitions is None else w.max_partitions for w in workers)
        cap = np.fromiter(limits, np.int64, size)
        alike = size > 0 and not state.any() and bool((capacity == capacity[0]).all())
        return cls(capacity, state, cap, alike and bool((cap == UNLIMITED).all()))

    @property
    def active(self) -> Bools:
        """Marks the workers that may take and keep partitions."""
        return np.asarray(self.state == 0)

    @property
    def cordoned(self) -> Bools:
        """Marks the workers that keep their partitions and get no others."""
        return np.asarray(self.state == 1)

    @property
    def draining(self) -> Bools:
        """Marks the workers that must release all their partitions."""
        return np.asarray(self.state == 2)


Kind = tuple[tuple[tuple[str, str], ...], str | None]  # the required labels and the pin of a partition


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The immutable input of every decision. Workers and partitions are ordered by id as bytes.

    Columns over partitions: `owner` is an index into `workers`, UNOWNED, or -2-k for `gone[k]`. `source` and `kind` are
    indices into `sources` and `kinds`. `rate` and `throughput` are NaN where unknown. `now` is in seconds. `absences`
    maps each gone worker to the time, on the clock of `now`, since which it is missing.
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
        """Build a snapshot. Raises AssignmentError if an id occurs twice or `owners` names an unknown partition."""
        team = tuple(sorted(workers, key=lambda w: w.id.encode()))
        parts = sorted(partitions, key=lambda p: p.id.encode())
        place = _index_ids("worker", [w.id for w in team])
        row = _index_ids("partition", [p.id for p in parts])
        gone = tuple(sorted({w for w in owners.values() if w not in place}, key=str.encode))
        code = place | {w: -2 - k for k, w in enumerate(gone)}
        owner = np.full(len(parts), UNOWNED, np.int32)
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
            rate=_replace_none([p.rate for p in parts]),
            throughput=_replace_none([p.throughput for p in parts]),
            gone=gone,
            epoch=epoch,
            now=now,
            absences=dict(absences or {}),
        )

    def name(self, code: int) -> str | None:
        """Return the worker id of an owner code, None for UNOWNED."""
        if code == UNOWNED:
            return None
        return self.workers[code].id if code >= 0 else self.gone[-2 - code]

    def partition(self, index: int) -> Partition:
        """Return the partition at this index."""
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
    """The target assignment. For each partition `target` is an index into the snapshot's workers, or UNOWNED."""

    snapshot: Snapshot
    target: Codes

    def as_dict(self) -> dict[str, tuple[str, ...]]:
        """Map each worker to its partitions. An active worker without partitions has an empty entry."""
        workers, ids = self.snapshot.workers, self.snapshot.partition_ids
        order = np.argsort(self.target, kind="stable")
        ends = np.searchsorted(self.target[order], np.arange(len(workers) + 1)).tolist()
        rows = order.tolist()
        return {
            worker.id: tuple(ids[i] for i in rows[ends[code] : ends[code + 1]])
            for code, worker in enumerate(workers)
            if worker.state == "active" or ends[code] < ends[code + 1]
        }


View = TypeVar("View")


class LazySequence(Sequence[View], Generic[View]):
    """A read-only sequence that creates each item when it is read."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def at(self, index: int) -> View:
        """Return the item at `index`, which is between 0 and the length."""
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
    """A target assignment and the ordered moves that lead to it. A dry run prints exactly what is published.

    `due` is when to plan again, in the snapshot's seconds; None: only after a change. `memory` can be written as JSON and
    is passed to the next call of `plan`.
    """

    assignment: Assignment
    moves: Sequence[Move]
    unassigned: Sequence[Unassigned]
    measures: Measures
    due: float | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)


def _index_ids(kind: str, ids: list[str]) -> dict[str, int]:
    places = {name: i for i, name in enumerate(ids)}
    if len(places) < len(ids):
        twice = next(name for i, name in enumerate(ids) if places[name] != i)
        raise AssignmentError(f"Two {kind}s have the id {twice!r}. Give each an id of its own")
    return places


def _replace_none(values: list[float | None]) -> Floats:
    return np.fromiter((np.nan if v is None else v for v in values), np.float64, len(values))
