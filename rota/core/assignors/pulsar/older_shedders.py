"""`threshold-shed` and `uniform-shed`: the two that AvgShedder replaces, as baselines, with Pulsar's least-resource-usage
placement. They show over-placement (everything onto the one lowest worker) and slowness (a mean that never acts).

Laws (`ThresholdShedder.java`, `UniformLoadShedder.java`, `LeastResourceUsageWithWeight.java`): `threshold-shed` takes from
every worker at least `threshold` above the mean of smoothed usage (history 0.9) as much of its throughput as it is over,
and 5 percentage points more. `uniform-shed` takes from the one busiest worker by rate `share` of its difference to the
idlest; by throughput only if the rates are near enough. What moved in the last 30 rounds stays. What is shed or has no
owner goes to a worker at least `threshold` below the mean of those that may take it, or to any of them if there is none.

Choices where the originals leave one, or cannot be followed: usage is smoothed once a round and serves both the shedder
and the placement, which each keep their own; amounts keep their fractions, which `UniformLoadShedder` cuts off; a partition
of which no traffic is known is never shed; lots are drawn from ids; `lowerBoundarySheddingEnabled` (off by default) is
left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rota.core.assignors.nearest_valid import fitted
from rota.core.assignors.options import Option, chosen, remembered
from rota.core.assignors.pulsar.scores import IMMUNE_ROUNDS, RESOURCES, Lots, Scores, lately, room
from rota.core.assignors.registry import Proposal
from rota.core.assignors.rounds import between, this_round
from rota.core.columns import counted
from rota.core.constraints import matching, rightful
from rota.core.values import Bools, Codes, Floats, Snapshot

MARGIN = 5.0  # percentage points: ADDITIONAL_THRESHOLD_PERCENT_MARGIN is 0.05, added to fractions
DELTA = 1000.0  # messages, or bytes, per second that `UniformLoadShedder` may overshoot
LEAST = 1e-6  # per second; an idlest worker with less counts as one with 1
MEMORY = {"usage": "numbers", "moved": "numbers", "at": "number", "round": "number"}


def by_threshold(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:
    """One round of ThresholdShedder."""
    known = {"threshold": Option(10.0), "history": Option(0.9, most=1.0), "min_throughput": Option(0.0)}
    settings = chosen("threshold-shed", options, known)
    return _round(snapshot, settings, remembered("threshold-shed", memory, MEMORY), _over_the_mean)


def by_extremes(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:
    """One round of UniformLoadShedder."""
    known = {
        "threshold": Option(10.0),
        "rate_percent": Option(50.0),
        "throughput_ratio": Option(4.0, least=1.0),
        "share": Option(0.2, most=1.0),
        "min_rate": Option(1000.0),
        "min_throughput": Option(1e6),
    }
    settings = chosen("uniform-shed", options, known)
    return _round(snapshot, settings, remembered("uniform-shed", memory, MEMORY), _from_the_busiest)


@dataclass(frozen=True, slots=True)
class _Case:
    """What a shedder looks at, and what it finds: partitions with the words for their move, or why there are none."""

    snapshot: Snapshot
    keeps: Codes
    scores: Scores
    usage: Floats
    settings: Mapping[str, Any]
    recent: Mapping[str, float]  # partitions that moved lately
    found: dict[int, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def take(self, worker: int, row: int, words: str, fits: Callable[[float, float], bool], wanted: float) -> None:
        """Of a worker with several partitions, the largest first, each that fits what is still wanted."""
        name, traffic = self.snapshot.workers[worker].id, self.scores.traffic[row - 1]
        held = np.flatnonzero(self.keeps == worker).tolist()
        able = [i for i in held if traffic[i] > 0]
        fresh = [i for i in able if self.snapshot.partition_ids[i] not in self.recent]
        if len(held) < 2:
            self.said.append(f"{words}, but {name} has {'one partition only' if held else 'no partition'}")
            return
        before = len(self.found)
        for i in sorted(fresh, key=lambda i: (-traffic[i], i)):
            if fits(float(traffic[i]), wanted):
                self.found[i] = words
                wanted -= float(traffic[i])
        if len(self.found) > before:
            return
        if not able:
            reason = "no traffic of its partitions is known"
        elif not fresh:
            reason = f"all its traffic moved in the last {IMMUNE_ROUNDS} rounds"
        else:
            reason = f"no partition of {name} is within the {wanted:g}/s to move"
        self.said.append(f"{words}, but {reason}")


def _round(
    snapshot: Snapshot, settings: Mapping[str, Any], past: Mapping[str, Any], shed: Callable[[_Case], None]
) -> Proposal:
    match = matching(snapshot)
    keeps = rightful(snapshot, match)
    if not snapshot.workers:
        return Proposal(keeps)
    scores = Scores.of(snapshot, keeps, dict.fromkeys(RESOURCES, 1.0))
    acts, number, due = this_round(snapshot, past["at"], past["round"])
    usage, history = scores.now[0].copy(), settings.get("history", 0.9) if acts else 1.0
    for code, worker in enumerate(snapshot.workers):
        if worker.id in past["usage"]:
            usage[code] = past["usage"][worker.id] * history + usage[code] * (1 - history)
    recent = lately(past["moved"], number, IMMUNE_ROUNDS)
    case = _Case(snapshot, keeps, scores, usage, settings, recent)
    if acts:
        shed(case)
    else:
        case.said.append(between(snapshot, past["at"]))
    target = keeps.copy()
    target[list(case.found)] = -1
    _place(case, match, target)
    target = fitted(snapshot, match, keeps, target)
    if case.found and (target == keeps).all():
        case.said.append("what would be shed finds no better place")
    memory: dict[str, Any] = {"usage": {w.id: float(u) for w, u in zip(snapshot.workers, usage, strict=True)}}
    memory |= {"round": number} | ({"at": snapshot.now if acts else past["at"]} if snapshot.now > 0 else {})

    def remembers(happens: Codes) -> dict[str, Any]:
        shed = [i for i in sorted(case.found) if happens[i] == target[i]]
        moved = recent | dict.fromkeys((snapshot.partition_ids[i] for i in shed), number)
        return memory | ({"moved": moved} if moved else {})

    note = "; ".join(case.said) if (target == keeps).all() else ""
    return Proposal(
        target, lambda i: case.found.get(i, "it made room"), remembers(target), note, due=due, remembers=remembers
    )


def _over_the_mean(case: _Case) -> None:
    """Of every worker at mean + threshold or above: throughput in proportion to what it is over, until that is reached."""
    active = np.flatnonzero(case.snapshot.team.active).tolist()
    used = {code: float(case.usage[code]) for code in active}
    mean, threshold = sum(used.values()) / len(used) if used else 0.0, case.settings["threshold"]
    hot = [code for code in active if used[code] >= mean + threshold] if mean > 0 else []
    for code in hot:
        words = f"{case.snapshot.workers[code].id} used {used[code]:.0f} %, the mean is {mean:.0f} %"
        wanted = float(case.scores.now[2, code]) * (used[code] - mean - threshold + MARGIN) / 100
        if wanted < case.settings["min_throughput"]:
            least = case.settings["min_throughput"]
            case.said.append(f"{words}, but the {wanted:g}/s to move are below min_throughput {least:g}")
        else:
            case.take(code, 2, words, lambda _, left: left > 0, max(wanted, LEAST))  # at least one, as there
    if not used or mean <= 0:
        case.said.append("no worker uses anything, as far as is known")
    elif not hot:
        highest = max(used.values())
        case.said.append(f"no worker is {threshold:g} above the mean of {mean:.0f} %: the highest used {highest:.0f} %")


def _from_the_busiest(case: _Case) -> None:
    """Of the one worker with the highest rate, if it is far above the lowest; of throughput only if the rates are not."""
    active, settings = np.flatnonzero(case.snapshot.team.active), case.settings
    if len(active) < 2:
        case.said.append("there are no two workers to compare")
        return
    low, high = case.scores.now[:, active].min(axis=1), case.scores.now[:, active].max(axis=1)
    low = np.where(low <= LEAST, 1.0, low)
    percent, ratio = settings["rate_percent"], settings["throughput_ratio"]
    if percent > 0 and (high[1] - low[1]) * 100 / low[1] > percent:
        row, least, measure = 1, "min_rate", "rate"
    elif high[2] / low[2] > ratio:
        row, least, measure = 2, "min_throughput", "throughput"
    elif high[1] <= LEAST and high[2] <= LEAST:
        case.said.append("no traffic is known")
        return
    else:
        case.said.append(
            f"rates of {low[1]:g} to {high[1]:g}/s are within {percent:g} %, "
            f"throughputs of {low[2]:g} to {high[2]:g}/s within {ratio:g} times"
        )
        return
    hot = int(active[np.argmax(case.scores.now[row, active])])
    wanted = float(high[row] - low[row]) * settings["share"]
    words = f"{case.snapshot.workers[hot].id} is the busiest by {measure}"
    if wanted < settings[least]:
        case.said.append(f"{words}, but the {wanted:g}/s to move are below {least} {settings[least]:g}")
        return
    case.take(hot, row, words, lambda traffic, left: traffic <= left + DELTA, wanted)


def _place(case: _Case, match: Bools, target: Codes) -> None:
    """Each by lot among the workers at least `threshold` below the mean of its candidates, or among all of them. Reports
    do not change meanwhile, which is what piles partitions up. A worker without partitions or rate counts as it is now."""
    snapshot, scores = case.snapshot, case.scores
    free, lots = room(snapshot, target), Lots(snapshot)
    quiet = (counted(case.keeps, len(snapshot.workers)) == 0) | (scores.now[1] == 0)
    usage = np.where(quiet, scores.now[0], case.usage)
    for i in np.flatnonzero(target < 0).tolist():
        able = match[snapshot.kind[i]] & (free > 0)
        if able.any():
            low = able & (usage + case.settings["threshold"] <= usage[able].mean())
            target[i] = lots.draw(low if low.any() else able, i)
            free[target[i]] -= 1
        elif case.keeps[i] >= 0:
            target[i] = case.keeps[i]
