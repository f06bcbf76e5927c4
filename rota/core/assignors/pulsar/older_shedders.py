"""`threshold-shed` and `uniform-shed`: the shedders that Pulsar's AvgShedder replaced, as baselines.

They show over-placement (all sheds go to the single lowest worker) and slowness (a smoothed mean that rarely acts).

Laws (`ThresholdShedder.java`, `UniformLoadShedder.java`, `LeastResourceUsageWithWeight.java`):
- `threshold-shed` sheds from every worker whose smoothed usage (history 0.9) is at least `threshold` above the mean. The
  percentage of throughput that it sheds is the usage above mean + `threshold`, plus 5 percentage points.
- `uniform-shed` sheds from the single busiest worker `share` of its difference to the idlest, by rate, or by throughput
  if the rates are close.
- A partition that moved in the last 30 rounds stays.
- A partition that is shed or has no owner goes to a worker at least `threshold` below the mean usage of its candidates,
  or to any candidate if none is that low.

Differences from the Java version: usage is smoothed once a round for both shedding and placement (in Java each smooths
its own); amounts keep their fractions (`UniformLoadShedder` truncates them); a partition of unknown traffic is never
shed; random draws are replaced by hashes of ids; `lowerBoundarySheddingEnabled` (off by default) is left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rota.core.assignors.known_assignors import Proposal
from rota.core.assignors.nearest_valid import find_nearest_valid
from rota.core.assignors.options import Option, read_memory, read_options
from rota.core.assignors.pulsar.scores import IMMUNE_ROUNDS, RESOURCES, Lots, Scores, count_room, select_recent
from rota.core.assignors.rounds import explain_pause, start_round
from rota.core.columns import count_per_worker
from rota.core.constraints import find_matches, find_valid_owners
from rota.core.values import Bools, Codes, Floats, Snapshot

MARGIN = 5.0  # percentage points: ADDITIONAL_THRESHOLD_PERCENT_MARGIN is 0.05, added to fractions
DELTA = 1000.0  # messages, or bytes, per second that `UniformLoadShedder` may overshoot
LEAST = 1e-6  # per second; a lowest rate up to this counts as 1
MEMORY = {"usage": "numbers", "moved": "numbers", "at": "number", "round": "number"}


def assign_by_threshold(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:
    """Run one round of ThresholdShedder. Raises ConfigError for a wrong option or memory."""
    known = {"threshold": Option(10.0), "history": Option(0.9, most=1.0), "min_throughput": Option(0.0)}
    settings = read_options("threshold-shed", options, known)
    return _run_round(snapshot, settings, read_memory("threshold-shed", memory, MEMORY), _shed_above_mean)


def assign_by_extremes(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:
    """Run one round of UniformLoadShedder. Raises ConfigError for a wrong option or memory."""
    known = {
        "threshold": Option(10.0),
        "rate_percent": Option(50.0),
        "throughput_ratio": Option(4.0, least=1.0),
        "share": Option(0.2, most=1.0),
        "min_rate": Option(1000.0),
        "min_throughput": Option(1e6),
    }
    settings = read_options("uniform-shed", options, known)
    return _run_round(snapshot, settings, read_memory("uniform-shed", memory, MEMORY), _shed_busiest)


@dataclass(frozen=True, slots=True)
class _BaselineRound:
    """The input of a shedder and its result.

    `found` maps each shed partition to a reason; `notes` state why others stay.
    """

    snapshot: Snapshot
    keeps: Codes
    scores: Scores
    usage: Floats
    settings: Mapping[str, Any]
    recent: Mapping[str, float]  # partitions that moved lately
    found: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def shed_partitions(
        self, worker: int, row: int, words: str, fits: Callable[[float, float], bool], wanted: float
    ) -> None:
        """Shed each partition of one worker, the largest first, if `fits(traffic, wanted)` with what is left of `wanted`.

        `row` is 1 for rate and 2 for throughput, `words` the reason. A worker with a single partition keeps it.
        """
        name, traffic = self.snapshot.workers[worker].id, self.scores.traffic[row - 1]
        held = np.flatnonzero(self.keeps == worker).tolist()
        able = [i for i in held if traffic[i] > 0]
        fresh = [i for i in able if self.snapshot.partition_ids[i] not in self.recent]
        if len(held) < 2:
            self.notes.append(f"{words}, but {name} has {'one partition only' if held else 'no partition'}")
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
        self.notes.append(f"{words}, but {reason}")


def _run_round(
    snapshot: Snapshot, settings: Mapping[str, Any], past: Mapping[str, Any], shed: Callable[[_BaselineRound], None]
) -> Proposal:
    match = find_matches(snapshot)
    keeps = find_valid_owners(snapshot, match)
    if not snapshot.workers:
        return Proposal(keeps)
    scores = Scores.of(snapshot, keeps, dict.fromkeys(RESOURCES, 1.0))
    acts, number, due = start_round(snapshot, past["at"], past["round"])
    usage, history = scores.now[0].copy(), settings.get("history", 0.9) if acts else 1.0
    for code, worker in enumerate(snapshot.workers):
        if worker.id in past["usage"]:
            usage[code] = past["usage"][worker.id] * history + usage[code] * (1 - history)
    recent = select_recent(past["moved"], number, IMMUNE_ROUNDS)
    case = _BaselineRound(snapshot, keeps, scores, usage, settings, recent)
    if acts:
        shed(case)
    else:
        case.notes.append(explain_pause(snapshot, past["at"]))
    target = keeps.copy()
    target[list(case.found)] = -1
    _place(case, match, target)
    target = find_nearest_valid(snapshot, match, keeps, target)
    if case.found and (target == keeps).all():
        case.notes.append("what would be shed finds no better place")
    memory: dict[str, Any] = {"usage": {w.id: float(u) for w, u in zip(snapshot.workers, usage, strict=True)}}
    memory |= {"round": number} | ({"at": snapshot.now if acts else past["at"]} if snapshot.now > 0 else {})

    def remember(happens: Codes) -> dict[str, Any]:
        shed = [i for i in sorted(case.found) if happens[i] == target[i]]
        moved = recent | dict.fromkeys((snapshot.partition_ids[i] for i in shed), number)
        return memory | ({"moved": moved} if moved else {})

    note = "; ".join(case.notes) if (target == keeps).all() else ""
    return Proposal(
        target, lambda i: case.found.get(i, "it made room"), remember(target), note, due=due, remember=remember
    )


def _shed_above_mean(case: _BaselineRound) -> None:
    """Shed from every worker at mean + threshold or above. The share of its throughput grows with its usage."""
    active = np.flatnonzero(case.snapshot.team.active).tolist()
    used = {code: float(case.usage[code]) for code in active}
    mean, threshold = sum(used.values()) / len(used) if used else 0.0, case.settings["threshold"]
    hot = [code for code in active if used[code] >= mean + threshold] if mean > 0 else []
    for code in hot:
        words = f"{case.snapshot.workers[code].id} used {used[code]:.0f} %, the mean is {mean:.0f} %"
        wanted = float(case.scores.now[2, code]) * (used[code] - mean - threshold + MARGIN) / 100
        if wanted < case.settings["min_throughput"]:
            least = case.settings["min_throughput"]
            case.notes.append(f"{words}, but the {wanted:g}/s to move are below min_throughput {least:g}")
        else:
            # at least one partition, as in Pulsar
            case.shed_partitions(code, 2, words, lambda _, left: left > 0, max(wanted, LEAST))
    if not used or mean <= 0:
        case.notes.append("no worker uses anything, as far as is known")
    elif not hot:
        highest = max(used.values())
        case.notes.append(
            f"no worker is {threshold:g} above the mean of {mean:.0f} %: the highest used {highest:.0f} %"
        )


def _shed_busiest(case: _BaselineRound) -> None:
    """Shed from the worker of the highest rate if that is far above the lowest rate; else compare throughputs."""
    active, settings = np.flatnonzero(case.snapshot.team.active), case.settings
    if len(active) < 2:
        case.notes.append("there are no two workers to compare")
        return
    low, high = case.scores.now[:, active].min(axis=1), case.scores.now[:, active].max(axis=1)
    low = np.where(low <= LEAST, 1.0, low)
    percent, ratio = settings["rate_percent"], settings["throughput_ratio"]
    if percent > 0 and (high[1] - low[1]) * 100 / low[1] > percent:
        row, least, measure = 1, "min_rate", "rate"
    elif high[2] / low[2] > ratio:
        row, least, measure = 2, "min_throughput", "throughput"
    elif high[1] <= LEAST and high[2] <= LEAST:
        case.notes.append("no traffic is known")
        return
    else:
        case.notes.append(
            f"rates of {low[1]:g} to {high[1]:g}/s are within {percent:g} %, "
            f"throughputs of {low[2]:g} to {high[2]:g}/s within {ratio:g} times"
        )
        return
    hot = int(active[np.argmax(case.scores.now[row, active])])
    wanted = float(high[row] - low[row]) * settings["share"]
    words = f"{case.snapshot.workers[hot].id} is the busiest by {measure}"
    if wanted < settings[least]:
        case.notes.append(f"{words}, but the {wanted:g}/s to move are below {least} {settings[least]:g}")
        return
    case.shed_partitions(hot, row, words, lambda traffic, left: traffic <= left + DELTA, wanted)


def _place(case: _BaselineRound, match: Bools, target: Codes) -> None:
    """Place each partition without an owner on a worker drawn from those at least `threshold` below the mean of its
    candidates, or from all candidates. A placement does not change usage, so partitions pile up. The usage of a worker
    without partitions or rate is the current one, not the smoothed one."""
    snapshot, scores = case.snapshot, case.scores
    free, lots = count_room(snapshot, target), Lots(snapshot)
    quiet = (count_per_worker(case.keeps, len(snapshot.workers)) == 0) | (scores.now[1] == 0)
    usage = np.where(quiet, scores.now[0], case.usage)
    for i in np.flatnonzero(target < 0).tolist():
        able = match[snapshot.kind[i]] & (free > 0)
        if able.any():
            low = able & (usage + case.settings["threshold"] <= usage[able].mean())
            target[i] = lots.draw(low if low.any() else able, i)
            free[target[i]] -= 1
        elif case.keeps[i] >= 0:
            target[i] = case.keeps[i]
