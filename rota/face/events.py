"""What happened in a group from one observation to the next: moves, hand-overs, refused writes, records that arrived.

ZooKeeper keeps the last 200 epochs and refused writes only, so no sum over its records is a counter. These values count from
the first observation on, as those of any process do.

Laws:
1. They are a pure function of the observations. Each epoch and each refused write counts once.
2. A hand-over is measured if an epoch assigned a partition that had an owner, and an observation finds the own record of its
   new owner. Where workers decide alone, no record states when a partition was requested.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rota.coordination.records import Epoch, Refusal
from rota.face.seen import Seen
from rota.ids import pipeline_of, worker_of

HANDOVER_BOUNDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 45.0, 120.0, 300.0)  # of the histogram
MOVES = ("voluntary", "unavoidable", "placement")
MAX_ARRIVALS = 32  # times that are kept of a partition; each further one halves them

Arrivals = tuple[tuple[float, int], ...]  # when an end was first observed, and that end; both grow


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram: how many values are at most each bound, and how many are above the last one; and their sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0

    @classmethod
    def of(cls, bounds: tuple[float, ...], values: Iterable[float] = ()) -> "Buckets":
        """Return the histogram of these values."""
        counts, total = [0] * (len(bounds) + 1), 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            total += value
        return cls(bounds, tuple(counts), total)

    def add(self, values: Iterable[float]) -> "Buckets":
        """Return the histogram with these values, too."""
        more = Buckets.of(self.bounds, values)
        counts = tuple(a + b for a, b in zip(self.counts, more.counts, strict=True))
        return Buckets(self.bounds, counts, self.total + more.total)


@dataclass(frozen=True, slots=True)
class Events:
    """What happened since the first observation.

    Args:
        epoch: the newest epoch that is counted.
        moves: kind of `MOVES` -> number.
        refused: pipeline -> refused writes.
        handovers: seconds from an epoch to the claim of a partition that it moved.
        ring: the refused writes of the last observation.
        assigned: partition that moved -> when, and the worker that has not claimed it yet.
        arrivals: partition -> when its ends that are not in the table yet were first observed.
    """

    epoch: int
    moves: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    handovers: Buckets = field(default_factory=lambda: Buckets.of(HANDOVER_BOUNDS))
    ring: Sequence[Refusal] = ()
    assigned: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    arrivals: Mapping[str, Arrivals] = field(default_factory=dict)


def follow_events(seen: Seen, epochs: Sequence[Epoch], ring: Sequence[Refusal], before: Events | None) -> Events:
    """Return what happened up to this observation.

    Args:
        seen: the observation.
        epochs: the audit; epochs that `before` counts may be among them.
        ring: the refused writes that ZooKeeper keeps.
        before: the result of the observation before; None for the first one.
    """
    arrivals = follow_ends(seen, before.arrivals if before else {})
    if before is None:
        return Events(seen.facts.epoch, ring=ring, arrivals=arrivals)
    moves, refused = Counter(before.moves), Counter(before.refused)
    assigned = dict(before.assigned)
    fresh = sorted((one for one in epochs if one.epoch > before.epoch), key=lambda one: one.epoch)
    for epoch in fresh:
        moves.update(count_moves(epoch))
        assigned |= {m.partition: (epoch.at, m.to_worker) for m in epoch.moves if m.from_worker and m.at is None}
    refused.update(pipeline_of(one.partition) for one in (Counter(ring) - Counter(before.ring)).elements())
    owns, taken = seen.facts.owns, dict[str, float]()
    for partition, (at, worker) in assigned.items():
        own = owns.get(partition)
        if own and own.incarnation and worker_of(own.incarnation) == worker and own.written >= at:
            taken[partition] = own.written - at
    return replace(
        before,
        epoch=max(seen.facts.epoch, *(one.epoch for one in fresh), 0),
        moves=moves,
        refused=refused,
        handovers=before.handovers.add(taken.values()),
        ring=ring,
        assigned={p: one for p, one in assigned.items() if p not in taken and p in owns},
        arrivals=arrivals,
    )


def count_moves(epoch: Epoch) -> dict[str, int]:
    """Return kind of `MOVES` -> number in this epoch. `moved` counts all, and `measures` what of them is not voluntary."""
    known = {name: int(value) for name, value in epoch.measures.items() if isinstance(value, int | float)}
    placed, forced = known.get("placements", 0), known.get("unavoidable_moves", 0)
    return {
        "voluntary": max(0, epoch.moved - placed - forced),
        "unavoidable": forced,
        "placement": placed,
    }


def follow_ends(seen: Seen, before: Mapping[str, Arrivals]) -> dict[str, Arrivals]:
    """Return partition with lag -> when its ends beyond its offset were first observed."""
    found: dict[str, Arrivals] = {}
    for one in seen.pipelines:
        for p, (offset, end) in one.ends.items():
            if offset >= end:
                continue
            kept = tuple(arrival for arrival in before.get(p, ()) if offset < arrival[1] <= end)
            if not kept or kept[-1][1] < end:
                kept = (*(kept if len(kept) < MAX_ARRIVALS else kept[::2]), (seen.now, end))
            found[p] = kept
    return found


def measure_ages(seen: Seen, arrivals: Mapping[str, Arrivals]) -> dict[str, float]:
    """Return partition -> for how many seconds its oldest record that is not in the table is known to wait.

    It is known since an observation found it, since a batch that reads it began, or since it parked its partition.
    Partitions without lag have 0; those whose source was not read have no entry.
    """
    facts = seen.facts
    begun = {p: run.since for run in facts.runs for p in run.partitions}
    ages: dict[str, float] = {}
    for one in seen.pipelines:
        for p in one.ends:
            if p not in arrivals:
                ages[p] = 0.0
                continue
            known = [arrivals[p][0][0], begun.get(p, seen.now)]
            if p in facts.parked and facts.parked[p].since:
                known.append(facts.parked[p].since)
            ages[p] = max(0.0, seen.now - min(known))
    return ages
