"""A thousand rounds of chaos for an assignor of loads, in the manner of Dicer's suite: hot keys, load from 0 to 120 %.

Each round the level of all load wanders, every partition's own load wanders, now and then one becomes hot and cools
down again; then the assignor plans, and the plan happens. Measured after each round: the excess of the busiest worker
over the mean, and the load that moved by choice. Then a rolling restart: each worker leaves, then comes back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rota.core import Partition, Snapshot, Worker, plan
from rota.core.values import Floats

BOUNDS = {"p50": 0.02, "p90": 0.03, "p95": 0.04, "balancing": 0.02, "out": 1.05, "back": 1.05}
"""What Dicer publishes: percentiles of the excess, moved load over all load a round, and in a rolling restart."""


OPTIONS = {"sticky-load": {"tolerance": 0.02}}
"""What the bounds ask for; the assignor's own default tolerates 10 %."""

COLUMNS = ("", "excess p50", "p90", "p95", "p99", "moved a round", "restart: out", "back")
LEGEND = (
    "excess: busiest worker over the mean, by share of 1,000 rounds. moved a round: mean share of all load that moved by "
    "choice. restart: load moved, over all load, while each worker in turn leaves, and comes back (1.00 each at best)."
)


@dataclass(frozen=True, slots=True)
class Chaos:
    """Percentiles of the excess over the mean, load moved by choice a round, load moved in a rolling restart."""

    rounds: int
    p50: float
    p90: float
    p95: float
    p99: float
    balancing: float
    out: float
    back: float

    def beyond(self) -> dict[str, float]:
        """The measures that are beyond the published bounds."""
        return {name: getattr(self, name) for name, bound in BOUNDS.items() if getattr(self, name) > bound}


class Storm:
    """The loads, and the group that bears them. No partition alone is more than half of a worker's mean share: Dicer
    splits such a key, and no assignment of whole partitions could even it out."""

    def __init__(self, assignor: str, options: Mapping[str, Any], partitions: int, workers: int, seed: int) -> None:
        self.assignor, self.options = assignor, options
        self.rng = np.random.default_rng(seed)
        self.ids = [f"p{i:05}" for i in range(partitions)]
        self.team = [Worker(f"w{i:03}") for i in range(workers)]
        self.base: Floats = self.rng.lognormal(0, 0.6, partitions)
        self.heat: Floats = np.ones(partitions)
        self.level = 0.6
        self.owners: dict[str, str] = {}
        self.memory: Mapping[str, Any] = {}
        self.now = 60.0

    def loads(self) -> Floats:
        """Every partition's load in this round; all workers together can carry 1 each."""
        raw = self.base * self.heat
        share = raw / raw.sum()
        for _ in range(8):
            share = np.minimum(share, 0.5 / len(self.team))
            share = share / share.sum()
        return np.asarray(share * self.level * len(self.team))

    def wander(self) -> None:
        """The next round's world."""
        self.level = float(np.clip(self.level + self.rng.normal(0, 0.05), 0.02, 1.2))
        self.base = self.base * np.exp(self.rng.normal(0, 0.01, len(self.base)))
        self.heat = 1 + (self.heat - 1) * 0.8
        if self.rng.random() < 0.1:
            self.heat[self.rng.integers(len(self.heat))] = self.rng.uniform(4, 16)

    def settle(self, team: list[Worker]) -> Floats:
        """Plans for `team`, and lets it happen; the loads that were planned with."""
        loads = self.loads()
        parts = [Partition(i, load=float(x)) for i, x in zip(self.ids, loads, strict=True)]
        snapshot = Snapshot.of(team, parts, self.owners, now=self.now)
        result = plan(snapshot, self.assignor, self.options, self.memory)
        self.memory, self.now = result.memory, self.now + 60
        self.owners = {p: w for w, held in result.assignment.as_dict().items() for p in held}
        return loads

    def excess(self, loads: Floats) -> float:
        """How far the busiest worker is above the mean, as a share of the mean."""
        held = dict.fromkeys((w.id for w in self.team), 0.0)
        for name, load in zip(self.ids, loads.tolist(), strict=True):
            held[self.owners[name]] += load
        return max(held.values()) * len(held) / float(loads.sum()) - 1

    def moved(self, before: Mapping[str, str], loads: Floats) -> float:
        """The share of all load that has another owner than before."""
        total = float(loads.sum())
        return sum(float(x) for i, x in zip(self.ids, loads, strict=True) if before.get(i) != self.owners[i]) / total


def chaos(
    assignor: str = "sticky-load",
    options: Mapping[str, Any] | None = None,
    rounds: int = 1_000,
    partitions: int = 400,
    workers: int = 10,
    seed: int = 1,
) -> Chaos:
    """What the assignor makes of a storm."""
    storm = Storm(assignor, options or {}, partitions, workers, seed)
    storm.settle(storm.team)
    excess, churn = [], []
    for _ in range(rounds):
        storm.wander()
        before = storm.owners
        loads = storm.settle(storm.team)
        excess.append(storm.excess(loads))
        churn.append(storm.moved(before, loads))
    out, back = _rolling_restart(storm)
    p50, p90, p95, p99 = (float(m) for m in np.percentile(excess, [50, 90, 95, 99]))
    return Chaos(rounds, p50, p90, p95, p99, float(np.mean(churn)), out, back)


def _rolling_restart(storm: Storm) -> tuple[float, float]:
    """Load moved while each worker in turn leaves, and while it comes back."""
    out = back = 0.0
    for worker in storm.team:
        for team in ([w for w in storm.team if w is not worker], storm.team):
            before = storm.owners
            loads = storm.settle(team)
            if team is storm.team:
                back += storm.moved(before, loads)
            else:
                out += storm.moved(before, loads)
    return out, back


def rows(found: Mapping[str, Chaos]) -> list[tuple[str, ...]]:
    """A row an assignor, and the published bounds below."""
    table = []
    for name, chaos_ in found.items():
        shares = (chaos_.p50, chaos_.p90, chaos_.p95, chaos_.p99, chaos_.balancing)
        table.append((name, *(f"{x:.2%}" for x in shares), f"{chaos_.out:.2f}", f"{chaos_.back:.2f}"))
    bounds = [f"{BOUNDS[n]:.0%}" for n in ("p50", "p90", "p95")]
    table.append(
        ("Dicer's bounds", *bounds, "-", f"{BOUNDS['balancing']:.0%}", f"{BOUNDS['out']:.2f}", f"{BOUNDS['back']:.2f}")
    )
    return table
