"""`python -m benchmarks`: ours beside the peers on the same states, both raw times and their ratio, and peak memory.

Every case runs in a process of its own, one after another. Without Java or Maven that column says so and the rest runs.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from benchmarks import run
from benchmarks.exact import optimum
from benchmarks.install import java_peer, python_peer
from benchmarks.picture import draw
from benchmarks.report import Results, markdown, section
from benchmarks.states import EVENTS, Case, grid, growth, yardstick
from rota.sim.pages import write_section

PARTS = ("speed", "python", "weighted", "azure", "growth")
BUDGETS = (1, 2, 4)


@click.command()
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Only these parts (default: all).")
@click.option("--quick", is_flag=True, help="No state above 10,000 partitions but the two groups; no growth.")
@click.option("--json", "as_json", is_flag=True, help="Print every raw time as JSON instead of tables.")
@click.option(
    "--write", type=click.Path(path_type=Path), help="Also put the tables into this page and the picture beside it."
)
def main(parts: tuple[str, ...], quick: bool, as_json: bool, write: Path | None) -> None:
    """Times rota and its peers side by side."""
    chosen = parts or tuple(p for p in PARTS if not (quick and p == "growth"))
    results = Results()
    began = time.monotonic()
    for part in chosen:
        for timing in STEPS[part](quick):
            value = timing.missing or f"{timing.median:.3f} ms"
            click.echo(f"{time.monotonic() - began:6.0f} s  {timing.engine}: {timing.state}: {value}", err=True)
            results.add(part, timing)
    if as_json:
        click.echo(json.dumps({p: [asdict(t) for t in ts] for p, ts in results.parts.items()}, indent=1))
    else:
        click.echo(markdown(results))
    if write is not None:
        if "growth" in results.parts:
            draw(results.parts["growth"], write.parent / "speed.png")
        for part, timings in results.parts.items():
            write_section(write, part, section(part, timings))


def speed(quick: bool) -> Iterator[run.Timing]:
    """The table of the targets: ours and Kafka's own Java."""
    java = java_peer()
    for case in grid(quick):
        yield run.rota(case)
        yield run.kafka_java(java, "uniform", case)
        if case.partitions < 1_000_000 or case.event in ("fresh", "add1"):  # the others take minutes and tell the same
            yield run.kafka_java(java, "sticky", case)
        if case.partitions <= 100_000 and case.overlap < 0:
            yield run.kafka_java(java, "cooperative", case)


def python(quick: bool) -> Iterator[run.Timing]:
    """kafka-python's sticky and kazoo's partitioner; both are Python."""
    sticky, slices = python_peer("kafka-python", "kafka_python_sticky.py"), python_peer("kazoo", "kazoo_partitioner.py")
    sizes = [(1_000, 100)] if quick else [(1_000, 100), (10_000, 100), (10_000, 1_000)]
    for partitions, workers in sizes:
        for event in EVENTS:
            case = Case(partitions, workers, event)
            yield run.rota(case)
            yield run.kafka_python(sticky, case)
            yield run.kazoo(slices, case)
    case = Case(1_000, 10, "add1")
    yield run.rota(case)
    yield run.kazoo(slices, case)


def weighted(quick: bool) -> Iterator[run.Timing]:
    """The yardstick: ours, the proven optimum, Yelp's genetic balancer; then 100,000 x 1,000."""
    genetic = python_peer("kafka-utils", "kafka_utils_genetic.py")
    snapshot = yardstick()
    load, owner = snapshot.load.tolist(), snapshot.owner.tolist()
    for budget in BUDGETS:
        yield run.rota_weighted(100, 10, budget)
        start = time.perf_counter()
        best, proven = optimum(snapshot, budget)
        name = "proven optimum (CP-SAT)" if proven else "best known (CP-SAT)"
        spent = (time.perf_counter() - start) * 1e3
        yield run.Timing(name, run.weighted_name(100, 10, budget), (spent,), {"after": best, "moves": budget})
        yield run.kafka_utils(genetic, load, owner, 10, budget)
    yield run.rota_weighted(100, 10, None)
    if not quick:
        yield run.rota_weighted(100_000, 1_000, None)


def azure(quick: bool) -> Iterator[run.Timing]:
    """Azure's ownership manager: rounds until settled, owner changes."""
    command = python_peer("azure-eventhub", "azure_ownership.py")
    for partitions, workers in [(100, 10)] if quick else [(100, 10), (1_000, 10)]:
        for strategy in ("balanced", "greedy"):
            for event in ("fresh", "add1", "sub1"):
                yield run.azure(command, partitions, workers, event, strategy)


def growing(quick: bool) -> Iterator[run.Timing]:  # noqa: ARG001
    """One more worker while P and W grow: ours, and the broker's where it takes less than a second."""
    java = java_peer()
    for case in growth():
        yield run.rota(case)
        yield run.kafka_java(java, "uniform", case)


STEPS = {"speed": speed, "python": python, "weighted": weighted, "azure": azure, "growth": growing}

if __name__ == "__main__":
    main()
