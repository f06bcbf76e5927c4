"""`python -m benchmarks`: times rota's planner and its peers on the same states: median times, ratios and peak memory.

Each case runs in a process of its own, one after another. Without Java or Maven the column of Kafka states that.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from benchmarks import run
from benchmarks.exact import find_optimum
from benchmarks.install import install_java_peer, install_python_peer
from benchmarks.pages import write_section
from benchmarks.picture import draw
from benchmarks.report import Results, format_part, format_results
from benchmarks.states import EVENTS, Case, build_yardstick, list_grid, list_growth

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
    """Times rota and its peers on the same states."""
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
        click.echo(format_results(results))
    if write is not None:
        if "growth" in results.parts:
            draw(results.parts["growth"], write.parent / "speed.png")
        for part, timings in results.parts.items():
            write_section(write, part, format_part(part, timings))


def time_speed(quick: bool) -> Iterator[run.Measurement]:
    """Times rota beside Kafka's own assignors in Java."""
    java = install_java_peer()
    for case in list_grid(quick):
        yield run.time_rota(case)
        yield run.time_kafka_java(java, "uniform", case)
        if case.partitions < 1_000_000 or case.event in (
            "fresh",
            "add1",
        ):  # the other events take minutes and show the same
            yield run.time_kafka_java(java, "sticky", case)
        if case.partitions <= 100_000 and case.overlap < 0:
            yield run.time_kafka_java(java, "cooperative", case)


def time_python_peers(quick: bool) -> Iterator[run.Measurement]:
    """Times rota beside kafka-python's sticky assignor and kazoo's partitioner, all in Python."""
    sticky, slices = (
        install_python_peer("kafka-python", "kafka_python_sticky.py"),
        install_python_peer("kazoo", "kazoo_partitioner.py"),
    )
    sizes = [(1_000, 100)] if quick else [(1_000, 100), (10_000, 100), (10_000, 1_000)]
    for partitions, workers in sizes:
        for event in EVENTS:
            case = Case(partitions, workers, event)
            yield run.time_rota(case)
            yield run.time_kafka_python(sticky, case)
            yield run.time_kazoo(slices, case)
    case = Case(1_000, 10, "add1")
    yield run.time_rota(case)
    yield run.time_kazoo(slices, case)


def time_weighted(quick: bool) -> Iterator[run.Measurement]:
    """Times `sticky-load` beside the proven optimum and Yelp's genetic balancer, then alone at 100,000 x 1,000."""
    genetic = install_python_peer("kafka-utils", "kafka_utils_genetic.py")
    snapshot = build_yardstick()
    load, owner = snapshot.load.tolist(), snapshot.owner.tolist()
    for budget in BUDGETS:
        yield run.time_rota_weighted(100, 10, budget)
        start = time.perf_counter()
        best, proven = find_optimum(snapshot, budget)
        name = "proven optimum (CP-SAT)" if proven else "best known (CP-SAT)"
        spent = (time.perf_counter() - start) * 1e3
        yield run.Measurement(
            name, run.name_weighted_state(100, 10, budget), (spent,), {"after": best, "moves": budget}
        )
        yield run.time_kafka_utils(genetic, load, owner, 10, budget)
    yield run.time_rota_weighted(100, 10, None)
    if not quick:
        yield run.time_rota_weighted(100_000, 1_000, None)


def time_azure(quick: bool) -> Iterator[run.Measurement]:
    """Counts the rounds and owner changes of Azure's ownership manager."""
    command = install_python_peer("azure-eventhub", "azure_ownership.py")
    for partitions, workers in [(100, 10)] if quick else [(100, 10), (1_000, 10)]:
        for strategy in ("balanced", "greedy"):
            for event in ("fresh", "add1", "sub1"):
                yield run.time_azure(command, partitions, workers, event, strategy)


def time_growth(quick: bool) -> Iterator[run.Measurement]:  # noqa: ARG001
    """Times one more worker for growing P and W, rota beside the assignor of Kafka's broker."""
    java = install_java_peer()
    for case in list_growth():
        yield run.time_rota(case)
        yield run.time_kafka_java(java, "uniform", case)


STEPS = {
    "speed": time_speed,
    "python": time_python_peers,
    "weighted": time_weighted,
    "azure": time_azure,
    "growth": time_growth,
}

if __name__ == "__main__":
    main()
