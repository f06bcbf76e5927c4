"""Builds the groups of the tests of the planner: workers, partitions and owners."""

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from rota.core import Partition, Plan, Snapshot, Worker

Case = tuple[list[Worker], list[Partition], dict[str, str]]
LOPSIDED = {f"p{i:02}": "w1" for i in range(12)}


def build_partitions(count: int) -> list[Partition]:
    return [Partition(f"p{i:02}") for i in range(count)]


def build_snapshot(team: Sequence[Worker], owners: dict[str, str], now: float = 0.0, **absences: float) -> Snapshot:
    return Snapshot.of(team, [Partition(p) for p in owners], owners, now=now, absences=absences)


def build_plain_snapshot(team: Sequence[str], owners: dict[str, str], now: float = 0.0, **absences: float) -> Snapshot:
    return build_snapshot([Worker(w) for w in team], owners, now, **absences)


def read_owners(made: Plan) -> dict[str, str]:
    return {p: w for w, held in made.assignment.as_dict().items() for p in held}


@st.composite
def draw_group(draw: Any) -> Case:
    """A small group of any kind: labels, pins, caps, loads, usage, all states of a worker."""

    def worker(i: int) -> Worker:
        return Worker(
            f"w{i}",
            capacity=draw(st.sampled_from([1.0, 1.0, 0.5, 2.0])),
            zone=draw(st.sampled_from([None, "a"])),
            state=draw(st.sampled_from(["active"] * 4 + ["cordoned", "draining"])),
            max_partitions=draw(st.sampled_from([None, None, None, 0, 1, 3])),
            usage=draw(st.sampled_from([None, {"cpu": 0.1}, {"cpu": 0.9, "rate": 9e4}])),
        )

    def partition(i: int) -> Partition:
        return Partition(
            f"p{i}",
            source=draw(st.sampled_from(["a", "b"])),
            load=draw(st.sampled_from([0.0, 1.0, 1.0, 5.0])),
            rate=draw(st.sampled_from([None, 1e3, 1e4])),
            requires=draw(st.sampled_from([{}, {}, {"zone": "a"}])),
            pin=draw(st.sampled_from([None] * 5 + ["w0", "w7"])),
        )

    workers = [worker(i) for i in range(draw(st.integers(0, 4)))]
    partitions = [partition(i) for i in range(draw(st.integers(0, 10)))]
    names = [None, "gone", *(w.id for w in workers)]
    owners = {p.id: w for p in partitions if (w := draw(st.sampled_from(names))) is not None}
    return workers, partitions, owners


LABELS = [{}, {}, {"disk": "ssd"}, {"disk": "hdd"}]
WISHES = [{}, {}, {}, {"disk": "ssd"}, {"zone": "a"}]


@st.composite
def draw_sticky_group(draw: Any, alike: bool = False, most: int = 6) -> Case:
    """A group small enough for the exact solver. `alike`: without labels, pins and unequal capacities."""
    workers = [
        Worker(
            f"w{i}",
            capacity=1.0 if alike else draw(st.sampled_from([1.0, 1.0, 2.0, 0.5, 3.0])),
            zone=None if alike else draw(st.sampled_from([None, "a", "b"])),
            labels={} if alike else draw(st.sampled_from(LABELS)),
            state=draw(st.sampled_from(["active"] * 5 + ["cordoned", "draining"])),
            max_partitions=draw(st.sampled_from([None, None, None, 0, 1, 2, 3])),
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    partitions = [
        Partition(
            f"p{i}",
            source=draw(st.sampled_from(["a", "b", "c"])),
            requires={} if alike else draw(st.sampled_from(WISHES)),
            pin=None if alike else draw(st.sampled_from([None] * 6 + ["w0", "w1", "w9"])),
        )
        for i in range(draw(st.integers(1, most)))
    ]
    names = [None, "gone", *(w.id for w in workers)]
    owners = {p.id: w for p in partitions if (w := draw(st.sampled_from(names))) is not None}
    return workers, partitions, owners


def build_crowded(seed: int) -> Case:
    """Small teams with little room, and partitions of which many have one place only."""
    rng = Random(seed)
    workers = [
        Worker(
            f"w{i}",
            zone=rng.choice([None, "a"]),
            state=rng.choice(["active"] * 5 + ["draining", "cordoned"]),
            max_partitions=rng.choice([None, 1, 2, 3]),
            usage={"cpu": rng.random(), "rate": 1e4, "throughput": 1e7},
        )
        for i in range(rng.randint(2, 4))
    ]
    pins = [None, None, *(w.id for w in workers)]
    partitions = [
        Partition(f"p{i}", pin=rng.choice(pins), requires=rng.choice([{}, {}, {"zone": "a"}]), rate=1e3, throughput=1e6)
        for i in range(rng.randint(2, 9))
    ]
    return workers, partitions, {p.id: rng.choice([w.id for w in workers] * 2 + ["gone"]) for p in partitions}


def build_drifted(count: int, team: int, seed: int, sigma: float = 0.5) -> Snapshot:
    """Lognormal weights placed longest first, then each times U[0.7, 1.4]: the published yardstick's shape."""
    rng = np.random.default_rng(seed)
    weight = rng.lognormal(0, sigma, count)
    loads, owner = np.zeros(team), {}
    for i in np.argsort(-weight, kind="stable").tolist():
        owner[f"p{i:04}"] = f"w{int(loads.argmin()):02}"
        loads[loads.argmin()] += weight[i]
    weight = weight * rng.uniform(0.7, 1.4, count)
    parts = [Partition(f"p{i:04}", load=float(x)) for i, x in enumerate(weight)]
    return Snapshot.of([Worker(f"w{i:02}") for i in range(team)], parts, owner)
