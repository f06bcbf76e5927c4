"""`python -m benchmarks.protocols`: every protocol in one table, and the lease race's hopping beside its cure.

In virtual time, with Azure's ownership manager in its own, and on a real ZooKeeper. See `benchmarks.virtual`,
`benchmarks.hopping` and `benchmarks.real` for the scenarios.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from benchmarks import hopping, real, virtual
from benchmarks.install import install_python_peer
from benchmarks.pages import write_section
from benchmarks.run import time_azure
from benchmarks.tally import Phase
from benchmarks.virtual import WORKERS, Case, Row

CASES = (
    Case("assigned", "assigned", {}),
    Case("claim", "claim", {}),
    Case("claim, published", "claim", {"steal": "published"}),
    Case("race, announced", "race", {}),
    Case("race, fastest", "race", {"decide": "fastest"}),
    Case("ordinal, published", "ordinal", {}),
    Case("ordinal, sticky", "ordinal", {"slices": "sticky"}),
)
HEAVY = ("race, fastest",)  # measured at 100 partitions only
SLOW = ("claim, published",)  # as well on the real server
SIZES = (100, 1_000)
PHASE = ("s", "moves", "unowned")
COLUMNS = (
    *("protocol", "partitions", "fill s", "+1: s", *PHASE[1:], "-1: s", *PHASE[1:], "doubly", "an hour: idle", "late"),
    *("idle: reads", "writes", "+1: reads", "writes"),
)
LEGEND = (
    "10 workers join within half a second; one more joins; then one is killed. s: to the last change of owner (-1 counts "
    "the 10 s of the session; hops: there is no last one). moves: partitions that another worker got, and the fewest "
    "possible. unowned: partition-seconds without a living owner. doubly: partition-seconds in which a partition was taken "
    "from a living worker that did not know it yet. an hour: moves an hour where nothing changes, idle and with workers "
    "that look a second late in the mean. reads, writes: nodes that one worker reads and writes in a minute in which "
    "nothing changes, and in the minute after the join."
)
REAL_LEGEND = (
    f"A session ends after {real.SESSION:g} s. doubly: claims of what a living worker had not let go; without any, no "
    f"partition had two owners for any time. an hour: from {real.STILL:g} s each in which nothing changes, all groups side "
    f"by side. reads, writes: of one worker a minute, in the idle {real.STILL:g} s, and from the join until nothing changed "
    f"for {real.CALM:g} s, or longer where a round or a grab lasts longer."
)


def play(sizes: Sequence[int]) -> Iterator[Row]:
    """Play every protocol at every size in virtual time, except `HEAVY` above 100 partitions; then Azure's."""
    azure = install_python_peer("azure-eventhub", "azure_ownership.py")
    for partitions in sizes:
        for case in CASES:
            if partitions <= 100 or case.name not in HEAVY:
                yield virtual.measure(case, partitions)
        for strategy in ("balanced", "greedy"):
            found = [time_azure(azure, partitions, WORKERS, event, strategy) for event in ("fresh", "add1", "sub1")]
            if missing := next((one.missing for one in found if one.missing), ""):
                click.echo(f"Azure {strategy}: {missing}", err=True)
                continue
            fill, join, kill = (one.answer or {} for one in found)
            yield Row(
                f"Azure, {strategy}",
                partitions,
                fill["seconds"],
                Phase(join["seconds"], join["changes"], join["unowned"]),
                Phase(kill["seconds"], kill["changes"], kill["unowned"]),
                (partitions // (WORKERS + 1), partitions // WORKERS),
                join["doubly"] + kill["doubly"],
                6.0 * (fill["after"] + join["after"] + kill["after"]) / 3,  # of 20 rounds, ten minutes
                None,
                (fill["reads"], fill["writes"], join["busy_reads"], join["busy_writes"]),
            )


def format_rows(rows: Sequence[Row], legend: str = LEGEND) -> str:
    """Return the table and its legend."""
    cells = [
        [*_format_start(row), f"{row.doubly:,.0f}", _format_rate(row.idle), _format_rate(row.late), *_format_asked(row)]
        for row in rows
    ]
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in cells), "", legend])


def _format_start(row: Row) -> list[str]:
    hops = bool(row.idle)  # its owners never stop changing
    cells = [row.name, f"{row.partitions:,}", "hops" if hops else f"{row.fill:,.1f}"]
    for phase, fewest in zip((row.join, row.kill), row.fewest, strict=True):
        seconds = "hops" if hops else f"{phase.seconds:,.1f}"
        cells += [seconds, f"{phase.moves} ({fewest})", f"{phase.unowned:,.0f}"]
    return cells


def _format_rate(moves: float | None) -> str:
    return "" if moves is None else f"{moves:,.0f}"


def _format_asked(row: Row) -> list[str]:
    return [f"{n:,.0f}" for n in row.asked]


def measure_real(sizes: Sequence[int]) -> Iterator[Row]:
    """The same on a real ZooKeeper; one round of the published claims takes a second there."""
    long = HEAVY + SLOW
    played = [(case, size) for size in sizes for case in CASES if size <= 100 or case.name not in long]
    with real.serve() as hosts:
        quiet = real.watch_quiet(hosts, played)
        for case, partitions in played:
            row, here = real.measure(hosts, case, partitions), quiet[case.name, partitions]
            yield replace(row, idle=here.idle, late=here.late, asked=(here.reads, here.writes, *row.asked))


def measure_race(write: Path | None) -> str:
    """The table of the race's hopping; its picture is beside the page."""
    virtual_hops = hopping.play_all()
    with real.serve() as hosts:
        real_hops = list(real.race(hosts))
    if write is not None:
        hopping.draw(virtual_hops, real_hops, write.parent / "race.png")
    return hopping.format_hops(virtual_hops, real_hops)


PARTS = ("table", "race", "real")
HELP = "Only these parts (default: all). The race's, and the real one, start a ZooKeeper."


@click.command()
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), default=PARTS, help=HELP)
@click.option("--partitions", "sizes", multiple=True, type=int, default=SIZES, show_default=True)
@click.option("--write", type=click.Path(path_type=Path), help="Also put tables into this page, the picture beside it.")
def main(parts: tuple[str, ...], sizes: tuple[int, ...], write: Path | None) -> None:
    """Compares the protocols."""
    for part in parts:
        if part == "race":
            text = measure_race(write)
        elif part == "real":
            text = format_rows([_tell(row) for row in measure_real(sizes)], REAL_LEGEND)
        else:
            text = format_rows([_tell(row) for row in play(sizes)])
        click.echo(f"{text}\n")
        if write is not None:
            write_section(write, f"protocols: {part}", text)


def _tell(row: Row) -> Row:
    click.echo(f"{row.name}: {row.partitions}", err=True)
    return row


if __name__ == "__main__":
    main()
