"""`race`, the lease race: whoever holds least answers a challenge first and wins the partition.

Laws of the published race, `decide="fastest"`:
1. Once in `lease` seconds a worker challenges each partition that it does not hold and that nobody grabs. Each partition
   has a moment of its own; workers whose clocks agree challenge it together, which is one challenge.
2. To a challenge the holder of a partitions answers after (a - head_start) x delay seconds, another worker that holds b
   after (b + 0.5) x delay. Each counts what it holds when it hears of the challenge, and keeps to that time. The first that
   makes the grab wins. The grab stays until the winner owns the partition, and for `min_grab` seconds at least.
3. A holder that loses drops the partition: it ends its batch and releases. The winner waits for that, `ROTA_MAX_SHUTDOWN` at
   most (`reconcile.assigned`). The maximum lease time is not needed: grabs and holders are gone with their sessions.

Who is late, answers late: a challenger wins if and only if a - b > head_start + 0.5 - (the holder's lateness - its
own) / delay. So partitions hop where answers take longer than `delay`. Challenges that are made at one moment are all
answered by the same counts: who holds least wins them all.

Laws of the cure, `decide="announced"`: nobody challenges. A worker grabs by the counts that all announce: what nobody holds,
while it has less than its share, or nobody who may take it has less than itself; and of one who holds two more than itself.
So where nothing changes nothing moves, however late anybody is.

In both, a worker drops what it may not hold (labels, pins) and what is beyond its cap, so that others can take it. What this
would leave to nobody, because all who may hold it are at their caps, is taken as in `rota.core.protocols.stranded`.
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

_Heard = tuple[float, float]  # when it heard of a challenge, and when it answers that


@dataclass(frozen=True, slots=True)
class _Race:
    """What a worker sees, and what it makes of it."""

    seen: Observation
    options: Mapping[str, Any]
    holders: Mapping[str, str]
    counts: Counter[str]
    valid: Mapping[str, Partition]  # what it may hold
    may: frozenset[str]  # what it may take beside what it holds
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
        """How many it holds, with what it takes now."""
        return self.counts[self.seen.me]

    @property
    def limits(self) -> dict[str, float]:
        """Up to how many each worker takes: its cap."""
        caps = {name: member.worker.max_partitions for name, member in self.seen.members.items()}
        return {name: inf if cap is None else cap for name, cap in caps.items()}

    def is_full(self) -> bool:
        """Whether it may hold no more."""
        most = self.seen.mine.worker.max_partitions
        return most is not None and self.held >= most

    def fit(self, partitions: Set[str]) -> frozenset[str]:
        """Of these what it may hold, up to its cap; what it owns first."""
        most, owned = self.seen.mine.worker.max_partitions, self.seen.owned
        return frozenset(sorted(self.valid.keys() & partitions, key=lambda p: (p not in owned, p))[:most])

    def should_take(self, partition: str) -> bool:
        """Whether a partition that nobody holds is its to take: it lacks one, or nobody who may take it has less."""
        if self.held < self.share:
            return True
        less = [m.worker for m in self.seen.members.values() if self.counts[m.worker.id] < self.held]
        able = [w for w in less if w.state == "active" and self.seen.may_hold(self.valid[partition], w)]
        return all(w.max_partitions is not None and self.counts[w.id] >= w.max_partitions for w in able)

    def take(self, partition: str) -> None:
        """Counts the partition as its own."""
        if (holder := self.holders.get(partition)) is not None:
            self.counts[holder] -= 1
        self.counts[self.seen.me] += 1

    def rank(self, partition: str) -> tuple[int, int]:
        """Orders what it might take: first that which the fewest others would choose before it."""
        lots = {worker: crc32(f"{worker} {partition}".encode()) for worker in self.seen.members}
        return sum(lot < lots[self.seen.me] for lot in lots.values()), lots[self.seen.me]

    def find_wait(self, partition: str) -> float:
        """How many seconds it waits until it answers a challenge that it hears of now."""
        mine = self.holders.get(partition) == self.seen.me
        count = max(0.0, self.held - self.options["head_start"]) if mine else self.held + 0.5
        return float(count * self.options["delay"])


def find_turn(partition: str, lease: float, after: float) -> float:
    """When a worker challenges the partition next: once in each lease time."""
    phase = crc32(partition.encode()) / 2**32
    return (floor(after / lease - phase) + 1 + phase) * lease


def decide(seen: Observation, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Decision:
    """See the laws of the module. It remembers when it heard of each challenge and when it answers that, and when it
    won each grab."""
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
    """Of its grabs those that it keeps, with the time when it won each: until it owns the partition, `min_grab` seconds at
    least."""
    seen, least = race.seen, race.options["min_grab"]
    held = {p: float(since.get(p, seen.now)) for p in sorted(asks)}
    return {p: at for p, at in held.items() if p not in seen.owned or seen.now - at < least}


def _grab_by_counts(race: _Race) -> frozenset[str]:
    """What it grabs by the counts that all announce: what nobody holds, then of the richest no more than it gains."""
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
    """The challenges that it answers now, those that it makes or keeps, when it heard of each that is open and when it
    answers that, and when it has something to do again."""
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
