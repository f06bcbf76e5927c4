"""The lease race's warning, and its cure: how many partitions change owner where nothing changes but that workers are late.

"It doesn't work in practice", its author says: loaded nodes answer late, and partitions hop. Lateness is the time that
passes, beyond the shipped pause, until a worker looks again: 0, or exponential with a mean.

What counts is lateness beside the delay d by which a worker waits for each partition that it holds. Here d and the lease
time are five times the defaults: the shipped pause of a quarter of a second to one is lateness too, too much for 0.2 s.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.tally import Change, arrange
from benchmarks.virtual import Case, Stretch, make_world

LATENESS = (0.0, 1.0, 2.5, 5.0, 15.0)  # seconds in the mean
DELAY = 1.0  # the current-leases-held delay d, in seconds
LEASE = 300.0
GRABBED = 5 / 6  # of a lease time a won grab stays: so a partition is raced for about once in each
RACES = ("fastest", "announced")
PERIODS = 2  # lease times that are measured


@dataclass(frozen=True, slots=True)
class Hops:
    """How one way of deciding does at one lateness: the share of partitions whose owner after a lease time is not the one
    before it, in the mean, and the changes of owner so far, (seconds, number), from the first of those lease times on."""

    decide: str
    lateness: float
    share: float
    jumps: tuple[tuple[float, int], ...]


def make_case(decide: str, lease: float = LEASE) -> Case:
    """The race, decided so."""
    options = {"decide": decide, "lease": lease, "min_grab": GRABBED * lease, "delay": DELAY}
    return Case(f"race, {decide}", "race", options)


def play(
    decide: str,
    lateness: float,
    partitions: int = 100,
    workers: int = 10,
    lease: float = LEASE,
    periods: int = PERIODS,
) -> Hops:
    """Workers that hold their share, and are late from half a lease time before what is measured: in virtual time."""
    case, start = make_case(decide, lease), 1.5 * lease
    world = make_world(case.name, partitions, (), start + periods * lease, workers)
    sim = Stretch(world, case)

    def be_late() -> None:
        sim.lateness = lateness

    sim.marks = {lease: be_late}
    sim.run()
    return count_hops(decide, lateness, sim.tally.changes, [p.id for p in world.partitions], start, periods, lease)


def count_hops(
    decide: str,
    lateness: float,
    changes: Sequence[Change],
    partitions: Collection[str],
    start: float,
    periods: int,
    lease: float = LEASE,
) -> Hops:
    """Compares the last owners before and after each lease time from `start` on."""
    ends = [start + n * lease for n in range(periods + 1)]
    owners: dict[str, str] = {}
    seen: list[dict[str, str]] = []
    jumps: list[tuple[float, int]] = [(0.0, 0)]
    for change in arrange(changes):
        while len(seen) <= periods and change.at >= ends[len(seen)]:
            seen.append(dict(owners))
        if change.worker is None:
            continue
        if change.at >= start and owners.get(change.partition) not in (None, change.worker) and len(seen) <= periods:
            jumps.append((change.at - start, jumps[-1][1] + 1))
        owners[change.partition] = change.worker
    seen += [dict(owners)] * (periods + 1 - len(seen))
    moved = sum(before.get(p) != after.get(p) for before, after in pairwise(seen) for p in partitions)
    return Hops(decide, lateness, moved / periods / len(partitions), tuple(jumps))


def format_hops(virtual: Sequence[Hops], real: Sequence[Hops]) -> str:
    """A row a lateness, a column a way of deciding."""
    columns = [(decide, virtual, decide) for decide in RACES]
    columns += [(f"{decide}, real server", real, decide) for decide in RACES] if real else []
    lines = [
        "| mean lateness / d | " + " | ".join(head for head, _, _ in columns) + " |",
        "|---:|" + "---:|" * len(columns),
    ]
    for lateness in sorted({one.lateness for one in virtual}):
        cells = [
            next((f"{100 * one.share:.0f} %" for one in found if (one.lateness, one.decide) == (lateness, decide)), "")
            for _, found, decide in columns
        ]
        lines.append(f"| {lateness / DELAY:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


COLOURS = {"fastest": "#d1495b", "announced": "#0b7a75"}
NAMES = {"fastest": "as published: the fastest answer wins", "announced": "the cure: announced counts decide"}


def draw(virtual: Sequence[Hops], real: Sequence[Hops], path: Path, lateness: float = 5.0) -> None:
    """Two panels: the share that hops over lateness, and the changes of owner as time passes at one lateness."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.edgecolor": "#999999"})
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    for decide in RACES:
        colour, mine = COLOURS[decide], sorted((h for h in virtual if h.decide == decide), key=lambda h: h.lateness)
        shares = [100 * h.share for h in mine]
        left.plot([h.lateness / DELAY for h in mine], shares, "o-", color=colour, label=NAMES[decide], lw=2, ms=5)
        measured = [h for h in real if h.decide == decide]
        label = f"{decide}, on a real ZooKeeper"
        if measured:
            points = [h.lateness / DELAY for h in measured], [100 * h.share for h in measured]
            left.plot(*points, "D", color=colour, mfc="none", ms=9, ls="", label=label)
        shown = next((h.jumps for h in mine if h.lateness == lateness), ())
        end = PERIODS * LEASE
        times, counts = [t for t, _ in shown] + [end], [n for _, n in shown] + [shown[-1][1] if shown else 0]
        right.step([t / 60 for t in times], counts, where="post", color=colour, lw=2, label=NAMES[decide])
    left.set(
        xlabel="mean lateness of a worker, in delays d",
        ylim=(-3, 100),
        title="partitions that change owner in a lease time, %",
    )
    right.set(
        xlabel="minutes in which nothing changes", title=f"changes of owner so far, workers {lateness / DELAY:g} d late"
    )
    left.legend(frameon=False)
    for axes in (left, right):
        axes.grid(True, color="#e6e6e6", lw=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set(fontsize=9.5, fontweight="bold")
        axes.title.set_ha("left")
        axes.title.set_x(0.0)
    title = "The lease race, 100 partitions over 10 workers: late answers make partitions hop"
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
