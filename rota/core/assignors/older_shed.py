"""`threshold-shed` and `uniform-shed`: the two that AvgShedder replaces, as baselines, with Pulsar's least-resource-usage
placement. They show over-placement (everything onto the one lowest worker) and slowness (a mean that never acts).

Laws: `threshold-shed` sheds from workers more than `threshold` above the mean of smoothed usage (history 0.9);
`uniform-shed` from the one busiest worker to whoever is lowest, `share` of the difference. What is shed or has no owner
goes to a worker more than `threshold` below the mean, or to anyone if there is none.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rota.core.assignors.fit import fitted
from rota.core.assignors.options import Option, chosen, remembered
from rota.core.assignors.registry import Proposal
from rota.core.assignors.scores import RESOURCES, ROUND, Lots, Scores, room
from rota.core.eligibility import matching, rightful
from rota.core.values import Bools, Codes, Floats, Ints, Snapshot

MARGIN = 0.05  # percent; what `ThresholdShedder.java` sheds beyond the threshold
DELTA = 1000.0  # messages per second that `UniformLoadShedder.java` may overshoot


def by_threshold(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:
    """One round of ThresholdShedder."""
    known = {"threshold": Option(10.0), "history": Option(0.9, most=1.0), "min_throughput": Option(0.0)}
    settings = chosen("threshold-shed", options, known)
    past = remembered("threshold-shed", memory, {"usage": "numbers"})
    return _round(snapshot, settings, past["usage"], _over_the_mean, settings["history"])


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
    past = remembered("uniform-shed", memory, {"usage": "numbers"})
    return _round(snapshot, settings, past["usage"], _from_the_busiest, 0.9)


def _round(
    snapshot: Snapshot, settings: Mapping[str, Any], past: Mapping[str, float], shed: Any, history: float
) -> Proposal:
    match = matching(snapshot)
    keeps = rightful(snapshot, match)
    if not snapshot.workers:
        return Proposal(keeps)
    scores = Scores.of(snapshot, keeps, dict.fromkeys(RESOURCES, 1.0), {})
    usage = np.array([
        past[w.id] * history + now * (1 - history) if w.id in past else now
        for w, now in zip(snapshot.workers, scores.now[0].tolist(), strict=True)
    ])  # fmt: skip
    shedding: dict[int, str] = shed(snapshot, keeps, scores, usage, settings)
    target = keeps.copy()
    target[list(shedding)] = -1
    _place(snapshot, match, target, usage, settings["threshold"], keeps)
    memory = {"usage": {w.id: float(u) for w, u in zip(snapshot.workers, usage, strict=True)}}
    target = fitted(snapshot, match, keeps, target)
    note = "" if shedding else "no worker is far enough from the others"
    return Proposal(target, lambda i: shedding.get(i, "it made room"), memory, note, due=snapshot.now + ROUND)


def _over_the_mean(
    snapshot: Snapshot, keeps: Codes, scores: Scores, usage: Floats, settings: Mapping[str, Any]
) -> dict[int, str]:
    """Of every worker above mean + threshold: throughput in proportion to what it is over, the largest first."""
    active = np.flatnonzero(snapshot.team.active)
    mean = float(usage[active].mean()) if len(active) else 0.0
    found: dict[int, str] = {}
    for code in active.tolist():
        over = usage[code] - mean - settings["threshold"]
        wanted = scores.now[2, code] * (over + MARGIN) / 100
        if over <= 0 or wanted < settings["min_throughput"]:
            continue
        held = np.flatnonzero(keeps == code)
        words = f"{snapshot.workers[code].id} used {usage[code]:.0f} %, the mean is {mean:.0f} %"
        found |= dict.fromkeys(_largest(scores.traffic[1], held, float(wanted)), words) if len(held) > 1 else {}
    return found


def _largest(traffic: Floats, held: Ints, wanted: float) -> list[int]:
    """Partitions in falling order of traffic until `wanted` is reached."""
    taken: list[int] = []
    for i in sorted(held.tolist(), key=lambda i: (-traffic[i], i)):
        if wanted <= 0 or traffic[i] <= 0:
            break
        taken.append(i)
        wanted -= float(traffic[i])
    return taken


def _from_the_busiest(
    snapshot: Snapshot, keeps: Codes, scores: Scores, usage: Floats, settings: Mapping[str, Any]
) -> dict[int, str]:
    """Of the one worker with the highest rate (or throughput), if it is far above the lowest."""
    del usage
    active = np.flatnonzero(snapshot.team.active)
    if len(active) < 2:
        return {}
    _, rate, throughput = scores.now
    for column, traffic, slack, far, least in (
        (rate, scores.traffic[0], DELTA, 1 + settings["rate_percent"] / 100, settings["min_rate"]),
        (throughput, scores.traffic[1], 0.0, settings["throughput_ratio"], settings["min_throughput"]),
    ):
        hot, cold = int(active[np.argmax(column[active])]), int(active[np.argmin(column[active])])
        wanted = float(column[hot] - column[cold]) * settings["share"]
        held = np.flatnonzero(keeps == hot)
        if column[hot] > column[cold] * far and wanted >= least and len(held) > 1:
            found: dict[int, str] = {}
            for i in sorted(held.tolist(), key=lambda i: (-traffic[i], i)):
                if 0 < traffic[i] <= wanted + slack and wanted > 0:
                    found[i] = f"{snapshot.workers[hot].id} is the busiest"
                    wanted -= float(traffic[i])
            return found
    return {}


def _place(snapshot: Snapshot, match: Bools, target: Codes, usage: Floats, threshold: float, keeps: Codes) -> None:
    """Each by lot among the workers more than `threshold` below the mean, or among all. Reports do not change meanwhile,
    which is what piles partitions up."""
    free, lots = room(snapshot, target), Lots(snapshot)
    active = snapshot.team.active
    mean = float(usage[active].mean()) if active.any() else 0.0
    for i in np.flatnonzero(target < 0).tolist():
        able = match[snapshot.kind[i]] & (free > 0)
        low = able & (usage < mean - threshold)
        if able.any():
            target[i] = lots.draw(low if low.any() else able, i)
            free[target[i]] -= 1
        elif keeps[i] >= 0:
            target[i] = keeps[i]
