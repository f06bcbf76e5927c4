"""Measures the known problem of the lease race, and its cure: how many partitions change owner although only the workers are
late.

"It doesn't work in practice", the author of the race writes: loaded nodes answer late, and partitions hop. An answer of a
worker is late twice: the worker reads the challenge late, and it polls late when its answer is due. Each lateness is
exponential, with half of the given lateness as its mean, and adds to the shipped pause.

The result depends on the lateness relative to the delay d that a worker waits for each partition that it holds. Here d and
the lease time are five times the defaults: the shipped pause of 0.25 to 1 s also counts as lateness, too much for d = 0.2 s.
An answer takes ten delays. With the published lease time of 300 delays, on average three challenges are open at once, and
each is answered by the counts before the others were decided. With a lease time of 3,000 delays that is rare.

All worlds start in balance, by announced counts. `together` has one more worker, no late answer, and a challenge of all
partitions at one moment.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from benchmarks.tally import Change, arrange
from benchmarks.virtual import WORKERS, Case, Stretch, make_world
from rota.core.protocols import race
from simulator.world import Happening

LATENESS = (0.0, 1.0, 2.5, 5.0, 15.0)  # of an answer, in the mean and in delays
DELAY = 1.0  # the current-leases-held delay d, in seconds
LEASE, LONG_LEASE = 300.0, 3_000.0
SPANS = {"min_grab": 5.0, "delay": DELAY}
BEGIN = 30.0  # seconds until the group is balanced, and the race begins
RACES = ("fastest", "announced")
LONG = "fastest, long leases"
PERIODS = 2  # lease times that are measured
ROUNDS = 200  # lease times that are computed


@dataclass(frozen=True, slots=True)
class Hops:
    """The result of one rule at one lateness: the mean share of partitions whose owner changed in a lease time, and the
    changes of owner so far, (seconds, number), from the first of those lease times on."""

    decide: str
    lateness: float
    share: float
    jumps: tuple[tuple[float, int], ...] = ()
    together: bool = False


def make_options(decide: str, lease: float) -> Mapping[str, object]:
    """The race, decided so."""
    return {"decide": decide, "lease": lease, **SPANS}


def find_one_moment(_: str, lease: float, after: float) -> float:
    """Replaces `race.find_turn` where all partitions are challenged at one moment."""
    return (after // lease + 1) * lease


def play(
    decide: str,
    lateness: float = 0.0,
    partitions: int = 100,
    workers: int = WORKERS,
    lease: float = LEASE,
    periods: int = PERIODS,
    *,
    together: bool = False,
) -> Hops:
    """Start the race, with late workers. The measurement begins a lease time later, at most `LEASE`."""
    start = BEGIN + min(lease, LEASE)
    joins = (Happening(BEGIN + 1, "join", f"w{workers + 1:02}"),) if together else ()
    world = make_world(f"race, {decide}", partitions, joins, start + periods * lease, workers)
    sim = Stretch(world, Case(world.name, "race", make_options("announced", lease)))

    def begin() -> None:
        sim.lateness = lateness * DELAY / 2
        sim.options = make_options(decide, lease)
        sim.reader.found(options=sim.options)

    sim.marks = {BEGIN: begin}
    with patch.object(race, "find_turn", find_one_moment if together else race.find_turn):
        sim.run()
    share, jumps = count_hops(sim.tally.changes, [p.id for p in world.partitions], start, periods, lease)
    return Hops(decide, lateness, share, jumps, together)


def play_all() -> list[Hops]:
    """Play every world of the table; without lateness, only short leases are played."""
    found = [play(decide, late) for decide in RACES for late in LATENESS]
    found += [play(decide, together=True) for decide in RACES]
    return found + [replace(play("fastest", late, lease=LONG_LEASE), decide=LONG) for late in LATENESS[1:]]


@cache
def compute_share(lateness: float, partitions: int = 100, workers: int = WORKERS, *, together: bool = False) -> float:
    """Compute the share of partitions that change owner in a lease time by the published rule: each partition is challenged,
    the next one after the last decision, and each answer is late by an exponential time. `together`: one count for all."""
    rng, moves = random.Random(1), 0
    owners = [n % workers for n in range(partitions)]
    team = workers + together
    counts = [owners.count(worker) for worker in range(team)]
    for _ in range(ROUNDS):
        known = tuple(counts)
        for partition in rng.sample(range(partitions), partitions):
            owner, held = owners[partition], known if together else counts
            answers = [(held[w] - 1 if w == owner else held[w] + 0.5) + _draw(rng, lateness) for w in range(team)]
            winner = answers.index(min(answers))
            moves += winner != owner
            owners[partition] = winner
            counts[owner] -= 1
            counts[winner] += 1
    return moves / ROUNDS / partitions


def _draw(rng: random.Random, mean: float) -> float:
    return rng.expovariate(1 / mean) if mean else 0.01 * rng.random()


def count_hops(
    changes: Sequence[Change], partitions: Collection[str], start: float, periods: int, lease: float = LEASE
) -> tuple[float, tuple[tuple[float, int], ...]]:
    """Compares the last owners before and after each lease time from `start` on: the share and the jumps of `Hops`."""
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
    return moved / periods / len(partitions), tuple(jumps)


def format_hops(virtual: Sequence[Hops], real: Sequence[Hops]) -> str:
    """A row a lateness, and one for challenges at one moment; what is computed, then a column a way of deciding."""
    columns = [(LONG, virtual), *((decide, virtual) for decide in RACES), *((decide, real) for decide in RACES if real)]
    heads = [decide + ", real server" * (found is real) for decide, found in columns]
    lines = [
        "| mean lateness of an answer / d | by the rule alone | " + " | ".join(heads) + " |",
        "|---:|---:|" + "---:|" * len(heads),
    ]
    for together, lateness in sorted({(one.together, one.lateness) for one in virtual}):
        shares: list[float | None] = [compute_share(lateness, together=together)]
        for decide, found in columns:
            here = {one.decide: one.share for one in found if (one.together, one.lateness) == (together, lateness)}
            shares.append(here.get(decide))
        cells = ["" if share is None else f"{100 * share:.0f} %" for share in shares]
        lines.append(f"| {lateness:g}{', all challenged at once' * together} | " + " | ".join(cells) + " |")
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
    points = sorted({h.lateness for h in virtual if not h.together})
    left.plot(
        points, [100 * compute_share(x) for x in points], "--", color="#999999", lw=1.2, label="by the rule alone"
    )
    for decide in RACES:
        colour = COLOURS[decide]
        mine = sorted((h for h in virtual if h.decide == decide and not h.together), key=lambda h: h.lateness)
        shares = [100 * h.share for h in mine]
        left.plot([h.lateness for h in mine], shares, "o-", color=colour, label=NAMES[decide], lw=2, ms=5)
        measured = [h for h in real if h.decide == decide]
        if measured:
            left.plot(
                [h.lateness for h in measured], [100 * h.share for h in measured], "D", color=colour, mfc="none", ms=9,
                ls="", label="the same on a real ZooKeeper",
            )  # fmt: skip
        shown = next((h.jumps for h in mine if h.lateness == lateness), ()) or ((0.0, 0),)
        times, counts = [t for t, _ in shown] + [PERIODS * LEASE], [n for _, n in shown] + [shown[-1][1]]
        right.step([t / 60 for t in times], counts, where="post", color=colour, lw=2)
        right.annotate(
            f"{decide}: {counts[-1]}", (times[-1] / 60, counts[-1]), (-2, 6), textcoords="offset points", color=colour,
            ha="right", fontweight="bold",
        )  # fmt: skip
    left.set(xlabel="mean lateness of an answer, in delays d", ylim=(-3, 105))
    left.set_title("partitions that change owner in a lease time, %")
    right.set(xlabel="minutes in which nothing changes")
    right.set_title(f"changes of owner so far, answers {lateness:g} d late")
    left.legend(frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.4))
    for axes in (left, right):
        axes.grid(True, color="#e6e6e6", lw=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set(fontsize=9.5, fontweight="bold", ha="left", x=0.0)
    right.margins(y=0.1)
    title = "The lease race, 100 partitions over 10 workers, nothing changes: late answers make partitions hop"
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
