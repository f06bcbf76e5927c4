"""`python -m benchmarks.protocols`: every protocol in virtual time, as one table.

The shipped agents over a ZooKeeper in memory, without runs: an answer takes 10 ms in the mean, a session ends 10 s after
its worker died. The controller of `assigned` is the simulator's: it looks once a second. Dagster's launches a run for each
decision, which takes some seconds more.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from rota.coordination.memory import MemoryStore
from rota.coordination.store import Check, Node, Op
from rota.sim.pages import write_section
from rota.sim.parts import Parts
from rota.sim.simulation import Simulation
from rota.sim.worker import WorkerProcess
from rota.sim.world import Happening, Timing, World
from rota.sim.worlds import make_partitions, make_team

CASES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "assigned": ("assigned", {}),
    "claim": ("claim", {}),
    "claim, published": ("claim", {"steal": "published"}),
    "race, announced": ("race", {}),
    "race, fastest": ("race", {"decide": "fastest"}),
    "ordinal, published": ("ordinal", {}),
    "ordinal, sticky": ("ordinal", {"slices": "sticky"}),
}
WORKERS = 10
CALM = 90.0  # seconds between two happenings, in which everything settles
ROUND = 36.0  # seconds, the longest round of the published claims, which place one partition each
COLUMNS = (
    *("protocol", "partitions", "fill s", "+1: s", "moves", "unowned", "-1: s", "moves", "unowned"),
    *("idle: reads", "writes", "+1: reads", "writes"),
)
LEGEND = (
    "10 workers join within half a second; one more joins; then one is killed. s: to the last change of owner (-1 counts "
    "the 10 s of the session). moves: partitions that another worker got, and the fewest possible. unowned: "
    "partition-seconds without a living owner. reads, writes: nodes that one worker reads and writes in a minute in which "
    "nothing changes, and in the minute after the join."
)


@dataclass
class Meter:
    """What all workers asked ZooKeeper for."""

    reads: int = 0
    writes: int = 0

    def attach(self, store: MemoryStore) -> None:
        """Counts what this client reads and writes."""
        get_many, children, multi = store.get_many, store.children, store.multi

        def counted_get(paths: Sequence[str]) -> tuple[Node | None, ...]:
            self.reads += len(paths)
            return get_many(paths)

        def counted_children(path: str) -> tuple[str, ...]:
            self.reads += 1
            return children(path)

        def counted_multi(ops: Sequence[Op]) -> tuple[Node | None, ...]:
            self.writes += sum(1 for op in ops if not isinstance(op, Check))
            return multi(ops)

        store.get_many, store.children, store.multi = counted_get, counted_children, counted_multi  # type: ignore[method-assign]


class Awake(Simulation):
    """Every agent looks as often as the process does, whether or not anything was written. `at` is called at its times."""

    marks: Mapping[float, Callable[[], None]] = {}

    def is_quiet(self, worker: WorkerProcess) -> bool:  # noqa: ARG002
        """Never: looks are counted."""
        return False

    def run(self):  # type: ignore[no-untyped-def]
        """As a simulation runs."""
        for when, call in self.marks.items():
            self.timeline.at(when, call)
        return super().run()


@dataclass
class Phase:
    """What one happening led to."""

    seconds: float = 0.0
    moves: int = 0
    unowned: float = 0.0
    fewest: int = 0


@dataclass
class Row:
    """One protocol at one size."""

    name: str
    partitions: int
    fill: float = 0.0
    join: Phase = field(default_factory=Phase)
    kill: Phase = field(default_factory=Phase)
    asked: tuple[float, ...] = ()


def measure(name: str, partitions: int) -> Row:
    """Plays fill, join and kill."""
    protocol, options = CASES[name]
    slow = options.get("steal") == "published"
    calm = ROUND * (partitions / WORKERS + 3) if slow else CALM
    begin, kill = calm, calm + max(CALM, ROUND * partitions / WORKERS / WORKERS * 1.5 if slow else 0.0) + CALM
    happenings = (Happening(begin, "join", f"w{WORKERS + 1:02}"), Happening(kill, "crash", "w03"))
    timing = Timing(backlog=1e9, report=1e9)
    end = kill + (ROUND * (partitions / WORKERS / WORKERS + 4) if slow else 0.0) + CALM
    world = World(
        name, name, make_team(WORKERS + 1), make_partitions(partitions), happenings, end, begin, timing=timing,
        later=frozenset({f"w{WORKERS + 1:02}"}),
    )  # fmt: skip
    meter, counts = Meter(), []
    sim = Awake(world, options=options, protocol=protocol, parts=Parts(connected=meter.attach))
    sim.checker.strict = True
    changes: list[float] = []
    said = sim.said
    sim.said = lambda worker, word, facts: changes.append(sim.now) if word == "claimed" else said(worker, word, facts)  # type: ignore[method-assign]
    mark = lambda: counts.append((meter.reads, meter.writes))  # noqa: E731
    sim.marks = {begin - 60: mark, begin - 0.001: mark, begin + 60: mark}
    phases = [Phase(), Phase()]
    totals: list[tuple[int, float]] = []
    note = lambda: totals.append((sim.meter.moves, sim.meter.unowned_seconds))  # noqa: E731
    killed: list[int] = []

    def strike() -> None:
        killed.append(sum(n for owner, n in sim.truth.held.items() if owner.startswith("w03@")))
        note()

    sim.marks |= {begin + 0.001: note, kill - 0.001: strike}
    sim.run()
    note()
    for phase, start, stop, before, after in ((phases[0], begin, kill, 0, 1), (phases[1], kill, end, 1, 2)):
        here = [at for at in changes if start <= at < stop]
        phase.seconds = max(here, default=start) - start
        phase.moves = totals[after][0] - totals[before][0]
        phase.unowned = totals[after][1] - totals[before][1]
    filled = max((at for at in changes if at < begin), default=0.0)
    (r0, w0), (r1, w1), (r2, w2) = counts
    asked = ((r1 - r0) / WORKERS, (w1 - w0) / WORKERS, (r2 - r1) / (WORKERS + 1), (w2 - w1) / (WORKERS + 1))
    phases[1].fewest, phases[0].fewest = killed[0], partitions // (WORKERS + 1)
    return Row(name, partitions, filled, phases[0], phases[1], asked)


def format_rows(rows: Sequence[Row]) -> str:
    """The table and what it means."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    for row in rows:
        cells = [row.name, f"{row.partitions:,}", f"{row.fill:,.1f}"]
        for phase in (row.join, row.kill):
            cells += [f"{phase.seconds:,.1f}", f"{phase.moves} ({phase.fewest})", f"{phase.unowned:,.0f}"]
        cells += [f"{n:,.0f}" for n in row.asked] or ["", "", "", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", LEGEND])


def play(sizes: Sequence[int]) -> Iterator[Row]:
    """Every protocol at every size, but the published claims above 100 partitions: an hour and more of one a round."""
    for partitions in sizes:
        for name in (c for c in CASES if partitions <= 100 or c != "claim, published"):
            yield measure(name, partitions)


@click.command()
@click.option("--partitions", "sizes", multiple=True, type=int, default=(100, 1_000), show_default=True)
@click.option("--write", type=click.Path(path_type=Path), help="Also put the table into this page.")
def main(sizes: tuple[int, ...], write: Path | None) -> None:
    """Compares the protocols."""
    rows = []
    for row in play(sizes):
        rows.append(row)
        click.echo(f"{row.name}: {row.partitions}", err=True)
    click.echo(format_rows(rows))
    if write is not None:
        write_section(write, "protocols", format_rows(rows))


if __name__ == "__main__":
    main()
