"""`avg-shed`: Pulsar's AvgShedder, which both sheds and places (`AvgShedder.java`).

Laws:
- The worker with the i-th lowest score is paired with the one with the i-th highest.
- A pair acts when its gap in score has lasted: `hits_low` rounds at `low` or above, or `hits_high` rounds at `high` or
  above.
- A pair that acts moves a share of its difference to its own lower worker, not to the lowest worker of all pairs.
- The memory holds counters, planned placements and the partitions that moved lately. It describes the moves that happen,
  and no move that a policy holds back.
- A plan without moves states why the pair that is nearest to acting does not act.

Differences from the Java version: scores are compared exactly (the Java version truncates their difference before it
sorts). A worker with a single partition keeps it, with a warning (the Java version warns and continues). Hashes of ids
replace random draws.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rota.core.assignors.known_assignors import Proposal
from rota.core.assignors.nearest_valid import find_nearest_valid
from rota.core.assignors.options import Option, read_memory, read_options
from rota.core.assignors.pulsar.predicted_load import PredictedLoad
from rota.core.assignors.pulsar.scores import IMMUNE_ROUNDS, RESOURCES, Lots, Scores, count_room, select_recent
from rota.core.assignors.rounds import explain_pause, start_round
from rota.core.constraints import find_matches, find_valid_owners
from rota.core.values import Bools, Codes, Ints, Snapshot
from rota.errors import ConfigError, shown

OPTIONS = {
    "low": Option(15.0),
    "high": Option(40.0),
    "hits_low": Option(8, least=1, whole=True),
    "hits_high": Option(2, least=1, whole=True),
    "share": Option(0.2, most=1.0),
    "min_rate": Option(1000.0),
    "min_throughput": Option(1e6),
    "immune_rounds": Option(IMMUNE_ROUNDS, whole=True),
}
MOST_PLANNED = 10_000
MEMORY = {
    "hit_low": "numbers",
    "hit_high": "numbers",
    "planned": "names",
    "moved": "numbers",
    "predicted": "lists",
    "predicted_at": "numbers",
    "at": "number",
    "round": "number",
}


def assign(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:
    """Run one round: count hits, shed in the pairs that are due, and place partitions without an owner.

    Raises ConfigError for a wrong option or memory.
    """
    weights = read_weights(options.get("weights"))
    settings = read_options(
        "avg-shed", {k: v for k, v in options.items() if k != "weights"}, OPTIONS | {"weights": Option(0)}
    )
    past = read_memory("avg-shed", memory, MEMORY)
    match = find_matches(snapshot)
    keeps = find_valid_owners(snapshot, match)
    if not snapshot.workers:
        return Proposal(keeps, memory=dict(memory))
    acts, number, due = start_round(snapshot, past["at"], past["round"])
    predicted = PredictedLoad.of(snapshot, Scores.of(snapshot, keeps, weights), past, number)
    shedding = _Round(snapshot, match, keeps, predicted.add_to_reports(), settings, past, number)
    if acts:
        shedding.run()
    else:
        shedding.waits.append(explain_pause(snapshot, past["at"]))
    shedding.place()
    target = find_nearest_valid(snapshot, match, keeps, shedding.target)

    def remember(happens: Codes) -> dict[str, Any]:
        low, high, planned, moved = shedding.remember(happens)
        immune = select_recent(past["moved"], number, settings["immune_rounds"])
        ids = set(snapshot.partition_ids)
        if len(planned) > MOST_PLANNED:  # one record must hold the memory: draws can be repeated, sheds cannot
            ids &= {*immune, *moved}
        keep: dict[str, Any] = {
            "hit_low": low,
            "hit_high": high,
            "planned": {p: w for p, w in sorted(planned.items()) if p in ids},
            "moved": immune | dict.fromkeys(moved, number),
            **predicted.remember(snapshot, happens),
            "round": number,
        }
        if snapshot.now > 0:
            keep["at"] = snapshot.now if acts else past["at"]
        return {k: v for k, v in keep.items() if v not in ({}, None)}

    return Proposal(target, shedding.explain, remember(target), shedding.note(target), due=due, remember=remember)


def read_weights(given: Any) -> dict[str, float]:
    """Return the weight of each resource, 1.0 by default. Raises ConfigError."""
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"options.weights: {shown(given)} is not valid. Valid: an object of {', '.join(RESOURCES)}")
    known = dict.fromkeys(RESOURCES, Option(1.0))
    return {k: float(v) for k, v in read_options("avg-shed", given, known, "options.weights").items()}


@dataclass(slots=True)
class _Round:
    """The state of one round. `number` is its number and `past` the memory of the previous round."""

    snapshot: Snapshot
    match: Bools
    keeps: Codes
    scores: Scores
    settings: Mapping[str, Any]
    past: Mapping[str, Any]
    number: int
    target: Codes = field(init=False)
    hit_low: dict[str, float] = field(init=False)
    hit_high: dict[str, float] = field(init=False)
    planned: dict[str, str] = field(init=False)
    reasons: dict[int, str] = field(default_factory=dict)
    warned: list[str] = field(default_factory=list)  # why pairs that were due did not act
    waits: list[str] = field(default_factory=list)  # why no pair was due
    acted: list[tuple[list[int], dict[str, float], dict[str, float]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        present = {w.id for w in self.snapshot.workers}
        self.target = self.keeps.copy()
        self.hit_low = {w: int(n) for w, n in sorted(self.past["hit_low"].items()) if w in present}
        self.hit_high = {w: int(n) for w, n in sorted(self.past["hit_high"].items()) if w in present}
        self.planned = dict(self.past["planned"])

    def run(self) -> None:
        """Pair the workers, count hits, and shed in the pairs that are due."""
        order = self._sort_by_score()
        ids = [self.snapshot.workers[code].id for code in order]
        score, candidates = self.scores.now[0], []
        for i in range((len(order) + 1) // 2):
            low, high = i, len(order) - 1 - i
            gap = float(score[order[high]] - score[order[low]])
            both = {ids[low], ids[high]}
            if gap < self.settings["low"] or low == high:
                self._clear_hits(both)
                continue
            for worker in both:
                self.hit_low[worker] = self.hit_low.get(worker, 0) + 1
                if gap >= self.settings["high"]:
                    self.hit_high[worker] = self.hit_high.get(worker, 0) + 1
                else:
                    self.hit_high.pop(worker, None)
            candidates.append((order[low], order[high], both, gap))
        if not candidates:
            self.hit_low, self.hit_high = {}, {}
        self._explain_waiting(order, candidates)
        for cold, hot, both, gap in candidates:
            if any(self.hit_high.get(w, 0) >= self.settings["hits_high"] for w in both) or any(
                self.hit_low.get(w, 0) >= self.settings["hits_low"] for w in both
            ):
                hits = [{w: h[w] for w in both if w in h} for h in (self.hit_low, self.hit_high)]
                had = {*self.reasons}
                self._clear_hits(both)
                self._shed(cold, hot, gap)
                self.acted.append(([i for i in self.reasons if i not in had], hits[0], hits[1]))

    def _explain_waiting(self, order: list[int], candidates: Sequence[tuple[int, int, set[str], float]]) -> None:
        """Record why no pair is due: the rounds that the nearest pair still needs, or the largest gap in score."""
        names, score = [w.id for w in self.snapshot.workers], self.scores.now[0]
        nearest = []
        for cold, hot, both, gap in candidates:
            for hits, needed in (
                (self.hit_low, self.settings["hits_low"]),
                (self.hit_high, self.settings["hits_high"]),
            ):
                if have := max((int(hits.get(w, 0)) for w in both), default=0):
                    words = (
                        f"{names[hot]} scores {gap:.0f} above {names[cold]}: round {have} of the {needed} that it takes"
                    )
                    nearest.append((needed - have, -gap, words))
        if nearest:
            self.waits.append(min(nearest)[2])
        elif len(order) < 2:
            self.waits.append("there are no two workers to compare")
        else:
            low, widest = self.settings["low"], score[order[-1]] - score[order[0]]
            pair = f"{names[order[-1]]} scores {widest:.3g} above {names[order[0]]}"
            self.waits.append(f"no two workers are {low:g} apart: {pair}")

    def _sort_by_score(self) -> list[int]:
        """Return the active workers ordered by score, without workers that hold partitions and report no usage."""
        able = np.flatnonzero(self.snapshot.team.active & self.scores.known)
        return sorted(able.tolist(), key=lambda code: (self.scores.now[0, code], code))

    def _clear_hits(self, workers: set[str]) -> None:
        for worker in workers:
            self.hit_low.pop(worker, None)
            self.hit_high.pop(worker, None)

    def _shed(self, cold: int, hot: int, gap: float) -> None:
        """Move partitions from `hot` to `cold`, the largest first, up to a share of the difference in rate, else in
        throughput."""
        settings, giver, taker = self.settings, self.snapshot.workers[hot].id, self.snapshot.workers[cold].id
        _, rate, throughput = (self.scores.now[:, hot] - self.scores.now[:, cold]) * settings["share"]
        words = f"{giver} scored {gap:.0f} above {taker} for long enough"
        if rate > settings["min_rate"]:
            remaining, traffic = float(rate), self.scores.traffic[0]
        elif throughput > settings["min_throughput"]:
            remaining, traffic = float(throughput), self.scores.traffic[1]
        elif rate <= 0 and throughput <= 0:
            self.warned.append(f"{words}, but no more traffic is known of it")
            return
        else:
            least = f"min_rate {settings['min_rate']:g} or min_throughput {settings['min_throughput']:g}"
            self.warned.append(
                f"{words}, but neither {rate:g}/s by rate nor {throughput:g}/s by throughput is above {least}"
            )
            return
        held: Ints = np.flatnonzero(self.keeps == hot)
        if len(held) < 2:
            self.warned.append(f"{giver} is hot with {'one partition only' if len(held) else 'no partition'}")
            return
        free, unfit = int(count_room(self.snapshot, self.target)[cold]), Counter[str]()
        for i in sorted(held.tolist(), key=lambda i: (-traffic[i], i)):
            name = self.snapshot.partition_ids[i]
            if against := self._find_obstacle(i, float(traffic[i]), remaining, cold, free):
                unfit[against] += 1
                continue
            remaining -= float(traffic[i])
            free -= 1
            self.target[i] = cold
            self.planned[name] = taker
            self.reasons[i] = words
        if unfit.total() == len(held):
            listed = ", ".join(f"{count} {against}" for against, count in sorted(unfit.items()))
            self.warned.append(f"{words}, but none of its partitions can move: {listed}")

    def _find_obstacle(self, i: int, traffic: float, remaining: float, cold: int, free: int) -> str:
        """Return why this partition cannot move to `cold`, empty if it can."""
        taker = self.snapshot.workers[cold].id
        if traffic <= 0:
            return "without known traffic"
        if self._is_immune(self.snapshot.partition_ids[i]):
            return f"moved in the last {self.settings['immune_rounds']} rounds"
        if traffic > remaining:
            return f"above the {remaining:g}/s to move"
        if not self.match[self.snapshot.kind[i], cold]:
            return f"not allowed on {taker}"
        return "" if free else f"without room on {taker}"

    def _is_immune(self, name: str) -> bool:
        since = self.past["moved"].get(name)
        return since is not None and self.number - since < self.settings["immune_rounds"]

    def place(self) -> None:
        """Place each partition without an owner on its planned worker, or else on a drawn worker that may take it."""
        places = {w.id: code for code, w in enumerate(self.snapshot.workers)}
        free, lots = count_room(self.snapshot, self.target), Lots(self.snapshot)
        for i in np.flatnonzero(self.target < 0).tolist():
            name = self.snapshot.partition_ids[i]
            able = self.match[self.snapshot.kind[i]] & (free > 0)
            if not able.any():
                continue
            planned = places.get(self.planned.get(name, ""), -1)
            taker = planned if planned >= 0 and able[planned] else lots.draw(able, i)
            self.target[i] = taker
            self.planned[name] = self.snapshot.workers[taker].id
            free[taker] -= 1

    def remember(self, happens: Codes) -> tuple[dict[str, float], dict[str, float], dict[str, str], list[str]]:
        """Return counters, planned placements and moved partitions for the memory, if the assignment becomes `happens`.

        A shed that is held back is neither planned nor moved. A pair whose sheds are all held back keeps its hits.
        """
        low, high, planned = dict(self.hit_low), dict(self.hit_high), dict(self.planned)
        held = {i for i in self.reasons if happens[i] == self.keeps[i]}
        for i in held:
            name = self.snapshot.partition_ids[i]
            planned.pop(name)
            if name in self.past["planned"]:
                planned[name] = self.past["planned"][name]
        for rows, low_before, high_before in self.acted:
            if rows and held.issuperset(rows):
                low, high = low | low_before, high | high_before
        moved = [self.snapshot.partition_ids[i] for i in self.reasons if i not in held]
        return dict(sorted(low.items())), dict(sorted(high.items())), planned, moved

    def explain(self, partition: int) -> str:
        """Return why a partition moves."""
        return self.reasons.get(partition, "it made room for another")

    def note(self, target: Codes) -> str:
        """Return why pairs that were due did not act and, if nothing changes, why no pair was due."""
        silent = [w.id for w, known in zip(self.snapshot.workers, self.scores.known, strict=True) if not known]
        said = [*self.warned, *([f"no usage reported by {', '.join(silent[:5])}"] if silent else [])]
        if not self.warned and (target == self.snapshot.owner).all():
            said += self.waits
        return "; ".join(said)
