"""Dicer's chaos suite for an assignor by load: hot keys, and loads from 0 to 120 % of the capacity of all workers.

    python -m benchmarks.chaos [--assignor sticky-load] [--seed 1] [--write docs/results.md] [--json]

In each of 1,000 rounds the total load wanders, each partition's load wanders, and now and then one partition becomes hot
and cools down again. The assignor then plans, and all its moves happen. After each round the suite measures two shares:
the excess of the busiest worker over the mean, and the load that moved by choice. At the end comes a rolling restart:
each worker leaves, then returns.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.pages import write_section
from rota.core import Partition, Snapshot, Worker, plan
from rota.core.assignors import ASSIGNORS
from rota.core.values import Floats

BOUNDS = {"p50": 0.02, "p90": 0.03, "p95": 0.04, "balancing": 0.02, "out": 1.05, "back": 1.05}
"""The bounds that Dicer publishes: percentiles of the excess, and moved load over all load (a round, a restart)."""


OPTIONS = {"sticky-load": {"tolerance": 0.02}}
"""The bounds ask for a tolerance of 2 %; the assignor's default is 10 %."""

COLUMNS = ("", "excess p50", "p90", "p95", "p99", "moved a round", "restart: out", "back")
LEGEND = (
    "excess: busiest worker over the mean, by share of 1,000 rounds. moved a round: mean share of all load that moved by "
    "choice. restart: load moved, over all load, while each worker in turn leaves, and comes back (1.00 each at best)."
)


@dataclass(frozen=True, slots=True)
class ChaosResult:
    """Shares, 1.0 is all load: percentiles of the excess over the mean, `balancing` the load that moved by choice in a
    round, `out` and `back` the load that moved in a rolling restart."""

    rounds: int
    p50: float
    p90: float
    p95: float
    p99: float
    balancing: float
    out: float
    back: float

    def broken_bounds(self) -> dict[str, float]:
        """The measures above the published bounds."""
        return {name: getattr(self, name) for name, bound in BOUNDS.items() if getattr(self, name) > bound}


class ChaosGroup:
    """A group whose loads change each round. A partition carries at most half of a worker's mean share: Dicer splits a
    larger key, and no assignment of whole partitions evens it out."""

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
        """The load of each partition in this round. Each worker can carry 1."""
        raw = self.base * self.heat
        share = raw / raw.sum()
        for _ in range(8):
            share = np.minimum(share, 0.5 / len(self.team))
            share = share / share.sum()
        return np.asarray(share * self.level * len(self.team))

    def change_loads(self) -> None:
        """Draws the loads of the next round."""
        self.level = float(np.clip(self.level + self.rng.normal(0, 0.05), 0.02, 1.2))
        self.base = self.base * np.exp(self.rng.normal(0, 0.01, len(self.base)))
        self.heat = 1 + (self.heat - 1) * 0.8
        if self.rng.random() < 0.1:
            self.heat[self.rng.integers(len(self.heat))] = self.rng.uniform(4, 16)

    def rebalance(self, team: list[Worker]) -> Floats:
        """Plans for `team`, applies the whole plan, and returns the loads that the plan saw."""
        loads = self.loads()
        parts = [Partition(i, load=float(x)) for i, x in zip(self.ids, loads, strict=True)]
        snapshot = Snapshot.of(team, parts, self.owners, now=self.now)
        result = plan(snapshot, self.assignor, self.options, self.memory)
        self.memory, self.now = result.memory, self.now + 60
        self.owners = {p: w for w, held in result.assignment.as_dict().items() for p in held}
        return loads

    def excess(self, loads: Floats) -> float:
        """The load of the busiest worker over the mean, minus 1."""
        held = dict.fromkeys((w.id for w in self.team), 0.0)
        for name, load in zip(self.ids, loads.tolist(), strict=True):
            held[self.owners[name]] += load
        return max(held.values()) * len(held) / float(loads.sum()) - 1

    def moved_share(self, before: Mapping[str, str], loads: Floats) -> float:
        """The share of all load whose owner differs from `before`."""
        total = float(loads.sum())
        return sum(float(x) for i, x in zip(self.ids, loads, strict=True) if before.get(i) != self.owners[i]) / total


def run_chaos(
    assignor: str = "sticky-load",
    options: Mapping[str, Any] | None = None,
    rounds: int = 1_000,
    partitions: int = 400,
    workers: int = 10,
    seed: int = 1,
) -> ChaosResult:
    """Runs the suite once. The same seed gives the same result."""
    group = ChaosGroup(assignor, options or {}, partitions, workers, seed)
    group.rebalance(group.team)
    excess, churn = [], []
    for _ in range(rounds):
        group.change_loads()
        before = group.owners
        loads = group.rebalance(group.team)
        excess.append(group.excess(loads))
        churn.append(group.moved_share(before, loads))
    out, back = _rolling_restart(group)
    p50, p90, p95, p99 = (float(m) for m in np.percentile(excess, [50, 90, 95, 99]))
    return ChaosResult(rounds, p50, p90, p95, p99, float(np.mean(churn)), out, back)


def _rolling_restart(group: ChaosGroup) -> tuple[float, float]:
    """The load that moves while each worker in turn leaves, and while it returns, over all load."""
    out = back = 0.0
    for worker in group.team:
        for team in ([w for w in group.team if w is not worker], group.team):
            before = group.owners
            loads = group.rebalance(team)
            if team is group.team:
                back += group.moved_share(before, loads)
            else:
                out += group.moved_share(before, loads)
    return out, back


def rows(results: Mapping[str, ChaosResult]) -> list[tuple[str, ...]]:
    """One row for each assignor, then the published bounds."""
    table = []
    for name, result in results.items():
        shares = (result.p50, result.p90, result.p95, result.p99, result.balancing)
        table.append((name, *(f"{x:.2%}" for x in shares), f"{result.out:.2f}", f"{result.back:.2f}"))
    bounds = [f"{BOUNDS[n]:.0%}" for n in ("p50", "p90", "p95")]
    table.append(
        ("Dicer's bounds", *bounds, "-", f"{BOUNDS['balancing']:.0%}", f"{BOUNDS['out']:.2f}", f"{BOUNDS['back']:.2f}")
    )
    return table


def markdown(results: Mapping[str, ChaosResult]) -> str:
    """The table and its legend."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows(results)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table}\n\n{LEGEND}"


@click.command()
@click.option("--assignor", "assignors", multiple=True, type=click.Choice(sorted(ASSIGNORS)), default=["sticky-load"])
@click.option("--seed", default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print every measure as JSON instead of the table.")
@click.option("--write", type=click.Path(path_type=Path), help="Also put the table into this page.")
def main(assignors: tuple[str, ...], seed: int, as_json: bool, write: Path | None) -> None:
    """Runs the chaos suite for each assignor and prints its measures beside Dicer's bounds."""
    results = {name: run_chaos(name, OPTIONS.get(name, {}), seed=seed) for name in assignors}
    if as_json:
        sys.stdout.write(json.dumps({name: asdict(result) for name, result in results.items()}, indent=1) + "\n")
    else:
        sys.stdout.write(markdown(results) + "\n")
    if write is not None:
        write_section(write, "chaos", markdown(results))


if __name__ == "__main__":
    main()
