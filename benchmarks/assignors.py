"""`python -m benchmarks.assignors`: the cost of each assignor in each simulated world, as one table and one picture.

The figures are those of `python -m simulator`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.pages import write_section
from simulator.compare import COLUMNS, LEGEND, Cell, contestants, grid
from simulator.worlds import WORLDS

COLOURS = {  # of a picture
    "sticky": "#0b7a75", "sticky-load": "#1f4e8c", "avg-shed": "#7a5ea8", "uniform-shed": "#b39bc8",
    "threshold-shed": "#c8553d", "ordinal": "#e0a458", "range": "#b8a06a", "round-robin": "#a3a3a3", "hash": "#cfcfcf",
    "claim": "#2a9d4e", "race": "#d1495b",
}  # fmt: skip
INK, FAINT = "#222222", "#e4e4e4"
TELLING = ("over-placement", "hot-partition", "rolling-restart")


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Writes the picture: dots for many worlds with a few of them over time, or one world over time alone."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.edgecolor": "#999999", "text.color": INK, "axes.labelcolor": INK})
    worlds = list(dict.fromkeys(c.world for c in cells))
    assignors = list(dict.fromkeys(c.assignor for c in cells))
    if len(worlds) == 1:
        figure, (above, below) = plt.subplots(2, 1, figsize=(8.5, 6), sharex=True, height_ratios=(2, 1))
        _over_time(above, cells, worlds[0])
        _moves_over_time(below, cells, worlds[0])
        below.set_xlabel("virtual seconds")
    else:
        figure = plt.figure(figsize=(12.5, 7.4))
        grid = figure.add_gridspec(3, 3, width_ratios=(1.15, 0.85, 1.25), wspace=0.28, hspace=0.42)
        left, middle = figure.add_subplot(grid[:, 0]), figure.add_subplot(grid[:, 1])
        _dots(left, cells, worlds, "imbalance_p99", "imbalance, p99 of the time (1 = even)", 1.0)
        _dots(middle, cells, worlds, "voluntary", "voluntary moves", 0.0)
        middle.set_yticklabels([])
        shown = [w for w in TELLING if w in worlds] or worlds[:3]
        for i, name in enumerate(shown[:3]):
            axes = figure.add_subplot(grid[i, 2])
            _over_time(axes, cells, name)
        axes.set_xlabel("virtual seconds")
    _legend(figure, assignors, rows=2 if len(worlds) == 1 else 1)
    figure.savefig(path, dpi=160, bbox_inches="tight", facecolor="white")
    plt.close(figure)


def _colour(assignor: str) -> str:
    return COLOURS.get(assignor, "#555555")


def _dots(axes: Any, cells: Sequence[Cell], worlds: Sequence[str], measure: str, title: str, best: float) -> None:
    """Draw a row for each world and a dot for each assignor; rota's dots are above the others."""
    for row, name in enumerate(worlds):
        if row % 2 == 0:
            axes.axhspan(row - 0.5, row + 0.5, color="#f6f6f4", lw=0, zorder=0)
        here = [c for c in cells if c.world == name]
        for rank, cell in enumerate(reversed(here)):
            value = _value(cell, measure)
            ours = cell.assignor.startswith("sticky")
            axes.scatter(
                value,
                row + 0.3 * (rank / max(1, len(here) - 1) - 0.5) * 2 * -1,
                s=46 if ours else 26,
                color=_colour(cell.assignor),
                edgecolor="white",
                linewidth=0.6,
                zorder=3 if ours else 2,
            )
    axes.set_yticks(range(len(worlds)), worlds)
    axes.set_ylim(len(worlds) - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.axvline(best, color="#bbbbbb", lw=0.8, zorder=1)
    axes.set_title(title, loc="left", fontsize=9.5, fontweight="bold")
    axes.spines[["top", "right", "left"]].set_visible(False)
    if measure == "voluntary":
        axes.set_xscale("symlog", linthresh=10)
        axes.set_xlim(left=-1)
        axes.set_xticks([0, 5, 10, 30, 100, 300], ["0", "5", "10", "30", "100", "300"])
        axes.set_xticks([], minor=True)


def _value(cell: Cell, measure: str) -> float:
    if measure == "voluntary":
        return cell.median("moves") - cell.median("unavoidable_moves")
    return cell.median(measure)


def _over_time(axes: Any, cells: Sequence[Cell], name: str) -> None:
    """Draw the imbalance over virtual time in one world, a line for each assignor."""
    for cell in reversed([c for c in cells if c.world == name]):
        times, values = _steps(cell.results[0].series, cell.results[0].duration)
        ours = cell.assignor.startswith("sticky")
        axes.step(
            times, values, where="post", color=_colour(cell.assignor), lw=1.8 if ours else 1.0, zorder=3 if ours else 2
        )
    axes.set_ylim(0.98, min(4.0, axes.get_ylim()[1]))
    axes.set_xlim(0, max(c.results[0].duration for c in cells if c.world == name))
    axes.set_title(f"{name}: imbalance over time", loc="left", fontsize=9.5, fontweight="bold")
    _plain(axes)


def _moves_over_time(axes: Any, cells: Sequence[Cell], name: str) -> None:
    for cell in reversed([c for c in cells if c.world == name]):
        times, values = _steps(((0.0, 0), *cell.results[0].jumps), cell.results[0].duration)
        axes.step(times, values, where="post", color=_colour(cell.assignor), lw=1.6)
    axes.set_title("moves so far", loc="left", fontsize=9.5, fontweight="bold")
    _plain(axes)


def _steps(points: Sequence[tuple[float, float]], end: float) -> tuple[list[float], list[float]]:
    """Return times and values; the last value continues to the end."""
    return [t for t, _ in points] + [end], [v for _, v in points] + [points[-1][1]]


def _plain(axes: Any) -> None:
    axes.grid(True, axis="y", color=FAINT, lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Any, assignors: Sequence[str], rows: int) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker="o", ls="", color=_colour(a), markeredgecolor="white", markersize=8, label=a)
        for a in assignors
    ]
    figure.legend(
        handles=handles,
        loc="upper center",
        ncols=-(-len(assignors) // rows),
        frameon=False,
        bbox_to_anchor=(0.5, 0.965 + 0.02 * (rows - 1)),
    )


def format_cells(cells: Sequence[Cell]) -> str:
    """The grid as a Markdown table."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * 2 + "---:|" * (len(COLUMNS) - 2)]
    last = ""
    for cell in cells:
        name, assignor, *numbers = cell.row()
        words = [f"{n:,.2f}" if isinstance(n, float) else f"{n:,}" for n in numbers]
        lines.append("| " + " | ".join([f"**{name}**" if name != last else "", str(assignor), *words]) + " |")
        last = str(name)
    return "\n".join([*lines, "", LEGEND])


@click.command()
@click.option("--world", "worlds", multiple=True, type=click.Choice(list(WORLDS)), help="Only these. Default: all.")
@click.option(
    "--write", type=click.Path(path_type=Path), help="Also put the table into this page, the picture beside it."
)
def main(worlds: tuple[str, ...], write: Path | None) -> None:
    """Compares the assignors. Raises Violation."""
    cells = grid(worlds or list(WORLDS), contestants(), [1])
    click.echo(text := format_cells(cells))
    if write is not None:
        write_section(write, "simulate", text)
        draw(cells, write.parent / "simulate.png")


if __name__ == "__main__":
    main()
