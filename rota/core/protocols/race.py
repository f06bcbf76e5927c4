"""`race`, the lease race: the worker that holds least answers a challenge first and wins the partition.

Laws of the published race, `decide="fastest"`:
1. Once every `lease` seconds a worker challenges each partition that it does not hold and that has no grab. The moment
   depends on the partition. Workers with synchronized clocks challenge it together, which counts as one challenge.
2. A holder with A partitions answers a challenge after (A - head_start) x delay seconds; another worker with B partitions
   answers after (B + 0.5) x delay. A worker counts when it sees the challenge, and keeps the resulting time. The first
   worker that creates the grab wins. The grab remains until the winner owns the partition, and at least `min_grab`
   seconds.
3. A holder that loses drops the partition: it ends its batch and releases. The winner waits for the release, at most
   `ROTA_MAX_SHUTDOWN` (`reconcile.assigned`). No maximum lease time is needed: grabs and holders end with their sessions.

A late worker answers late: a challenger wins if and only if A - B > head_start + 0.5 - (the holder's lateness - the
challenger's) / delay. Therefore partitions move back and forth if answers take longer than `delay`. Challenges
made at one moment are all answered by the same counts, so the worker that holds least wins them all.

Laws of the correction, `decide="announced"`: no worker challenges. A worker grabs by the counts that all announce. It
grabs free partitions while it has less than its share, or while no worker that may take them has fewer. It grabs from a
worker that holds at least two more than itself. If nothing changes, nothing moves, however late a worker is.

In both variants, a worker drops partitions that it may not hold (labels, pins) or that exceed its cap, so that others can
take them. Partitions that would stay without an owner, because all workers that may hold them are at their caps, are
handled by `rota.core.protocols.stranded`.
"""

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from math import floor, inf
from typing import Any
from zlib import crc32

from rota.core.protocols.observation import Decision, Observation
from rota.core.protocols.stranded import rescue_stranded
from rota.core.values import Partition

NAME = "challenge-"  # and the place of the partition among all

_Heard = tuple[float, float]  # when a worker saw a challenge, and when it answers


@dataclass(frozen=True, slots=True)
class _Race:
    """An observation, and what this worker derives from it."""

    seen: Observation
    options: Mapping[str, Any]
    holders: Mapping[str, str]
    counts: Counter[str]
    valid: Mapping[str, Partition]  # partitions that this worker may hold
    may: frozenset[str]  # partitions that this worker may take in addition
    share: int

    @classmethod
    def of(cls, seen: Observation, options: Mapping[str, Any]) -> "_Race":
        holders = seen.find_holders()
        me, active = seen.mine.worker, [m for m in seen.members.values() if m.worker.state == "active"]
        valid = {p.id: p for p in seen.partitions if seen.may_hold(p, me)}
        free = valid.keys() - seen.mine.target if me.state == "active" else set()
        free -= {p for p in seen.grabs if p in free} | (holders.keys() if seen.paused else set())
        share = -(-len(seen.partitions) // max(1, len(active)))
        return cls(seen, options, holders, Counter(holders.values()), valid, frozenset(free), share)

    @property
    def held(self) -> int:
        """How many partitions this worker holds, including those that it takes now."""
        return self.counts[self.seen.me]

    @property
    def limits(self) -> dict[str, float]:
        """The largest number of partitions that each worker takes: its cap."""
        caps = {name: member.worker.max_partitions for name, member in self.seen.members.items()}
        return {name: inf if cap is None else cap for name, cap in caps.items()}

    def is_full(self) -> bool:
        """Return whether this worker is at its cap."""
        most = self.seen.mine.worker.max_partitions
        return most is not None and self.held >= most

    def fit(self, partitions: Set[str]) -> frozenset[str]:
        """Return the given partitions that this worker may hold, up to its cap; those that it owns come first."""
        most, owned = self.seen.mine.worker.max_partitions, self.seen.owned
        return frozenset(sorted(self.valid.keys() & partitions, key=lambda p: (p not in owned, p))[:most])

    def should_take(self, partition: str) -> bool:
        """Return whether this worker takes a free partition: it has less than its share, or no other worker that may take
        the partition has fewer."""
        if self.held < self.share:
            return True
        less = [m.worker for m in self.seen.members.values() if self.counts[m.worker.id] < self.held]
        able = [w for w in less if w.state == "active" and self.seen.may_hold(self.valid[partition], w)]
        return all(w.max_partitions is not None and self.counts[w.id] >= w.max_partitions for w in able)

    def take(self, partition: str) -> None:
        """Count the partition as this worker's own."""
        if (holder := self.holders.get(partition)) is not None:
            self.counts[holder] -= 1
        self.counts[self.seen.me] += 1

    def rank(self, partition: str) -> tuple[int, int]:
        """Return the sort key of a partition to take: those that the fewest other workers would prefer come first."""
        lots = {worker: crc32(f"{worker} {partition}".encode()) for worker in self.seen.members}
        return sum(lot < lots[self.seen.me] for lot in lots.values()), lots[self.seen.me]

    def find_wait(self, partition: str) -> float:
        """Return the seconds until this worker answers a challenge that it sees now."""
        mine = self.holders.get(partition) == self.seen.me
        count = max(0.0, self.held - self.options["head_start"]) if mine else self.held + 0.5
        return float(count * self.options["delay"])


def find_turn(partition: str, lease: float, after: float) -> float:
    """Return when a worker challenges the partition next after `after`: once in each lease time."""
    phase = crc32(partition.encode()) / 2**32
    return (floor(after / lease - phase) + 1 + phase) * lease


def decide(seen: Observation, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Decision:
    """Return the decision by the laws of the module.

    The memory holds when this worker saw each challenge, when it answers each, and when it won each grab.
    """
    if seen.mine.worker.state == "draining":
        return Decision(frozenset())
    race = _Race.of(seen, options)
    rescue = rescue_stranded(seen, race.holders, race.limits)
    kept = race.fit(seen.kept | seen.asks) - rescue.drops
    won = _keep_grabs(race, kept & seen.asks, memory.get("won", {}))
    if options["decide"] == "announced":
        answers, names, heard, times = _grab_by_counts(race), frozenset[str](), dict[str, _Heard](), list[float]()
    else:
        answers, names, heard, times = _answer(race, memory)
    answers |= rescue.takes
    times += [at + options["min_grab"] for p, at in won.items() if p in seen.owned]
    return Decision(
        kept | answers,
        frozenset(won.keys() | answers | names),
        {"won": won | dict.fromkeys(answers, seen.now), "heard": heard, "last": seen.now},
        min((at for at in times if at > seen.now), default=None),
        bool(answers or heard or won.keys() - seen.owned),
    )


def _keep_grabs(race: _Race, asks: Set[str], since: Mapping[str, Any]) -> dict[str, float]:
    """Return the grabs that this worker keeps, with the time when it won each. It keeps a grab until it owns the
    partition, and at least `min_grab` seconds."""
    seen, least = race.seen, race.options["min_grab"]
    held = {p: float(since.get(p, seen.now)) for p in sorted(asks)}
    return {p: at for p, at in held.items() if p not in seen.owned or seen.now - at < least}


def _grab_by_counts(race: _Race) -> frozenset[str]:
    """Return the partitions to grab by the announced counts: free ones, then one at a time from the worker that holds
    most, while it holds at least two more than this worker."""
    theirs: dict[str | None, list[str]] = {}
    for partition in sorted(race.may, key=race.rank, reverse=True):
        theirs.setdefault(race.holders.get(partition), []).append(partition)
    grabs = set[str]()
    for partition in reversed(theirs.pop(None, [])):
        if not race.is_full() and race.should_take(partition):
            grabs.add(partition)
            race.take(partition)
    while not race.is_full() and (rich := [name for name in theirs if theirs[name]]):
        richest = min(rich, key=lambda name: (-race.counts[name or ""], name))
        if race.counts[richest or ""] - race.held < 2:
            break
        partition = theirs[richest].pop()
        grabs.add(partition)
        race.take(partition)
    return frozenset(grabs)


def _answer(
    race: _Race, memory: Mapping[str, Any]
) -> tuple[frozenset[str], frozenset[str], dict[str, _Heard], list[float]]:
    """Return the partitions whose challenge this worker answers now, the challenges that it makes or keeps, the times of
    each open challenge, and when it acts next."""
    seen, lease = race.seen, float(race.options["lease"])
    names = {one.id: f"{NAME}{number}" for number, one in enumerate(seen.partitions)}
    known: Mapping[str, _Heard] = memory.get("heard", {})
    heard = {
        p: known.get(p) or (seen.now, seen.now + race.find_wait(p))
        for p, name in names.items()
        if name in seen.grabs and p not in seen.grabs
    }
    answers, times = set[str](), list[float]()
    for partition in sorted(heard, key=lambda p: (heard[p], race.rank(p))):
        mine = race.holders.get(partition) == seen.me
        if not mine and (partition not in race.may or race.is_full()):
            continue
        if (at := heard[partition][1]) > seen.now:
            times.append(at)
            continue
        answers.add(partition)
        if not mine:
            race.take(partition)
    last = float(memory.get("last", seen.now))
    asked = {p for p in race.may - heard.keys() if find_turn(p, lease, last) <= seen.now}
    asked |= {p for p, (at, _) in heard.items() if seen.grabs[names[p]] == seen.me and seen.now - at < lease}
    times += [find_turn(p, lease, seen.now) for p in race.may]
    return frozenset(answers), frozenset(names[p] for p in asked - answers), heard, times
