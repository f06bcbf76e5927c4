"""The picture of a group's history: a ribbon for each partition over time, coloured by owner, a tick for each commit, a red
cross for each refused write, and a line for each worker that joined, left or was killed."""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from rota.history import Span, Story, find_spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, QUIET, PAPER, NOBODY, REFUSED = "#22303c", "#7b8a97", "#ffffff", "#e9edf0", "#d7263d"
COLOURS = (  # told apart also by the colour-blind; no red among them: red is the refused write
    "#3d7ea6", "#e9a03b", "#4fa37f", "#8e6bb0", "#c9b458", "#5bb5c9", "#b0719a", "#7f8c5a", "#9c7a5b", "#5f74c4",
)  # fmt: skip
WIDE = 13.0  # inches
UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800)


def draw_story(story: Story, title: str | None = "", *, inches: float = WIDE, dpi: int = 110) -> bytes:
    """The picture as PNG bytes, `inches` wide. `title` None: without one. The same story gives the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ribbons = find_spans(story)
    figure = Figure(figsize=(inches, 2.2 + 0.3 * min(max(len(ribbons), 4), 64)), dpi=dpi, facecolor=PAPER)
    share = inches / WIDE
    left, top = 0.085 / share, 0.88 if title is None else 0.82
    axes = figure.add_axes((left, 0.14, 0.985 - left, top - 0.14))
    rows = {partition: row for row, partition in enumerate(ribbons)}
    colours = _choose_colours(ribbons.values())
    _draw_ribbons(axes, ribbons, rows, colours, story.since)
    _veil_orphans(axes, story, ribbons, rows)
    _draw_ticks(axes, story, rows)
    _draw_moments(axes, story, len(rows), share)
    _set_axes(axes, story, rows, share)
    _draw_legend(axes, colours, bool(story.refused), share)
    if title is not None:
        figure.text(left, 0.945, title or _make_title(story), color=INK, fontsize=13, fontweight="bold", va="center")
    canvas, out = FigureCanvasAgg(figure), BytesIO()
    canvas.print_figure(out, format="png")
    return out.getvalue()


def _make_title(story: Story) -> str:
    return story.epochs[-1].sentence if story.epochs else f"Group {story.group}: no epoch yet"


def _choose_colours(ribbons: Iterable[Sequence[Span]]) -> Mapping[str, str]:
    owners = sorted({s.owner for ribbon in ribbons for s in ribbon if s.owner})
    return {owner: COLOURS[i % len(COLOURS)] for i, owner in enumerate(owners)}


def _draw_ribbons(
    axes: "Axes",
    ribbons: Mapping[str, Sequence[Span]],
    rows: Mapping[str, int],
    colours: Mapping[str, str],
    zero: float,
) -> None:
    for partition, ribbon in ribbons.items():
        for span in ribbon:
            axes.broken_barh(
                [(span.start - zero, span.end - span.start)],
                (rows[partition] - 0.38, 0.76),
                facecolors=colours[span.owner] if span.owner else NOBODY,
                edgecolors=PAPER,
                linewidth=0.8,
            )


def _veil_orphans(axes: "Axes", story: Story, ribbons: Mapping[str, Sequence[Span]], rows: Mapping[str, int]) -> None:
    """Fades a ribbon from the end of its owner until the epoch that gave the partition to another worker."""
    for moment in story.moments:
        held = (
            s for r in ribbons.values() for s in r if s.owner and s.owner == moment.gone and s.start < moment.at < s.end
        )
        for span in held:
            axes.broken_barh(
                [(moment.at - story.since, span.end - moment.at)],
                (rows[span.partition] - 0.38, 0.76),
                facecolors=PAPER,
                alpha=0.62,
                linewidth=0,
            )


def _draw_ticks(axes: "Axes", story: Story, rows: Mapping[str, int]) -> None:
    done = [t for t in story.commits if t.partition in rows]
    axes.vlines(
        [t.at - story.since for t in done],
        [rows[t.partition] - 0.26 for t in done],
        [rows[t.partition] + 0.26 for t in done],
        colors=PAPER,
        linewidth=1.6,
    )
    refused = [t for t in story.refused if t.partition in rows]
    axes.plot(
        [t.at - story.since for t in refused],
        [rows[t.partition] for t in refused],
        linestyle="",
        marker="X",
        markersize=10,
        markerfacecolor=REFUSED,
        markeredgecolor=PAPER,
        markeredgewidth=1.2,
        zorder=5,
        clip_on=False,
    )


def _draw_moments(axes: "Axes", story: Story, height: int, share: float) -> None:
    """Draws a line for each moment, and the number of each epoch. A label that would touch another goes up a row."""
    width = max(story.until - story.since, 1.0)
    last = [-width, -width]
    for moment in story.moments:
        x = moment.at - story.since
        axes.axvline(x, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=4)
        room = 0.009 / share * width * len(moment.text)
        level = 0 if x - last[0] > room else 1
        last[level] = x
        axes.annotate(
            moment.text,
            (x, -0.5),
            (0, 8 + 13 * level),
            textcoords="offset points",
            color=INK,
            fontsize=9,
            ha="center" if x + room / 2 < width else "right",
            annotation_clip=False,
        )
    for epoch in story.epochs:
        axes.annotate(
            str(epoch.epoch),
            (epoch.at - story.since, height - 0.5),
            (0, -9),
            textcoords="offset points",
            color=PAPER,
            fontsize=7,
            ha="center",
            va="center",
            bbox={"boxstyle": "round,pad=0.25", "facecolor": QUIET, "edgecolor": "none"},
            annotation_clip=False,
        )


def _set_axes(axes: "Axes", story: Story, rows: Mapping[str, int], share: float) -> None:
    width = max(story.until - story.since, 1.0)
    axes.set_xlim(0, width)
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.set_yticks(list(rows.values()) if len(rows) <= 64 else [])
    axes.set_yticklabels(list(rows) if len(rows) <= 64 else [], color=INK, fontsize=9)
    axes.tick_params(axis="x", colors=QUIET, labelsize=9, length=0, pad=16)
    axes.tick_params(axis="y", length=0)
    unit, seconds = next((u, s) for u, s in UNITS if width >= 10 * s or s == 1)
    step = next((s for s in STEPS if width / s <= 14 * share), width)
    axes.set_xticks([i * step for i in range(int(width / step) + 1)])
    axes.set_xticklabels([f"{i * step / seconds:g}" for i in range(int(width / step) + 1)])
    axes.set_xlabel(unit, color=QUIET, fontsize=9, loc="left")
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(False)


def _draw_legend(axes: "Axes", colours: Mapping[str, str], refused: bool, share: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = [Patch(facecolor=c, label=w) for w, c in colours.items()]
    handles.append(Line2D([], [], color=QUIET, marker="|", linestyle="", markersize=9, label="commit"))
    if refused:
        handles.append(Line2D([], [], color=REFUSED, marker="X", linestyle="", markersize=8, label="write refused"))
    axes.legend(
        handles=handles,
        loc="upper right",
        bbox_to_anchor=(1.0, -0.075),
        ncols=min(len(handles), int(12 * share)),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.1,
        columnspacing=1.3,
    )
