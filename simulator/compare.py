"""Runs every assignor in every world: the grid, and its cells over several seeds."""

import gc
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from rota.core.assignors.known_assignors import ASSIGNORS
from rota.core.protocols.known_protocols import ASSIGNED
from rota.errors import ConfigError
from simulator.simulation import Result, Simulation
from simulator.worlds import world

COLUMNS = ("world", "assignor", "p50", "p99", "moves", "unavoidable", "settled s", "doubly s", "unowned s")
LEGEND = (
    "p50, p99: imbalance (max/mean utilization) by share of time. unavoidable: moves whose owner was gone, leaving, "
    "drained or over its cap. settled: the longest time from a happening to the last change of owner. doubly: "
    "partition-seconds in which runs of two incarnations worked on one partition (the table refuses the older one's "
    "commit). unowned: partition-seconds without a living owner."
)
ORDER = (  # the best-known first
    "sticky", "sticky-load", "avg-shed", "uniform-shed", "threshold-shed", "ordinal", "range", "round-robin", "hash",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """One simulation to run."""

    world: str
    assignor: str
    seed: int
    protocol: str = ASSIGNED


@dataclass(frozen=True, slots=True)
class Cell:
    """One world under one assignor: the median of each measure over its seeds, and one run to draw."""

    world: str
    assignor: str
    results: tuple[Result, ...]

    def median(self, measure: str) -> float:
        """Return the median over the seeds."""
        return float(statistics.median(getattr(r, measure) for r in self.results))

    def row(self) -> tuple[object, ...]:
        """Return the cells of the table, in the order of `COLUMNS`."""
        whole = ("moves", "unavoidable_moves", "converge", "doubly", "unowned")
        return (
            self.world,
            self.assignor,
            self.median("imbalance_p50"),
            self.median("imbalance_p99"),
            *(round(self.median(m)) for m in whole),
        )


def contestants() -> tuple[str, ...]:
    """Return every assignor, the best-known first."""
    return (*(a for a in ORDER if a in ASSIGNORS), *sorted(set(ASSIGNORS) - set(ORDER)))


def check_contestant(name: str) -> str:
    """Return `name` if it is an assignor. Raises ConfigError, which lists the assignors."""
    if name not in contestants():
        raise ConfigError(f"Unknown assignor {name!r}. Known: {', '.join(contestants())}")
    return name


def run_one(task: Task) -> Result:
    """Run one simulation without garbage collection, which would cost time. Raises Violation."""
    gc.disable()
    try:
        return Simulation(world(task.world), task.assignor, task.seed, protocol=task.protocol).run()
    finally:
        gc.enable()


def run_all(tasks: Sequence[Task], jobs: int | None = None) -> Iterator[Result]:
    """Yield each task's result, in order, from as many processes as there are cores."""
    count = min(jobs or os.cpu_count() or 1, len(tasks))
    if count <= 1:
        yield from map(run_one, tasks)
        return
    with ProcessPoolExecutor(count) as pool:
        yield from pool.map(run_one, tasks)


def grid(
    worlds: Sequence[str],
    assignors: Sequence[str],
    seeds: Sequence[int],
    jobs: int | None = None,
    note: Callable[[Result], None] = lambda _: None,
    protocol: str = ASSIGNED,
) -> list[Cell]:
    """Run every assignor in every world with every seed, and call `note` with each result. Raises Violation."""
    tasks = [Task(w, a, s, protocol) for w in worlds for a in assignors for s in seeds]
    found: dict[tuple[str, str], list[Result]] = {}
    for result in run_all(tasks, jobs):
        note(result)
        found.setdefault((result.world, result.assignor), []).append(result)
    return [Cell(w, a, tuple(results)) for (w, a), results in found.items()]


def document(cells: Iterable[Cell]) -> dict[str, Any]:
    """Return the grid as JSON: every result of every seed, without its series."""
    results = []
    for cell in cells:
        for result in cell.results:
            fields = asdict(result)
            del fields["series"], fields["jumps"]
            results.append(fields)
    return {"results": results}
