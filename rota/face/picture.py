"""The picture of a group's history: a ribbon for each partition over time, coloured by owner, a tick for each commit, a red
cross for each refused write, and a line for each worker that joined, left or was killed.

Laws: names are beside the ribbons. If there is no room for all, every n-th name is drawn, and a note gives n. A letter that
no installed font has is escaped, as in "\\u6771". No name is read as a formula.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from math import ceil
from typing import TYPE_CHECKING

from rota.errors import ConfigError
from rota.face.history import Span, Story, find_spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, QUIET, PAPER, UNOWNED, REFUSED = "#22303c", "#7b8a97", "#ffffff", "#e9edf0", "#d7263d"
COLOURS = (  # also colour-blind people can distinguish them; none is red, the colour of a refused write
    "#3d7ea6", "#e9a03b", "#4fa37f", "#8e6bb0", "#c9b458", "#5bb5c9", "#b0719a", "#7f8c5a", "#9c7a5b", "#5f74c4",
)  # fmt: skip
UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800)
WIDE, TALL = 13.0, 20.0  # inches: of the picture, and of all ribbons at most
ROW, LINE = 0.3, 0.17  # inches: of one ribbon at most, and of a name
TITLE, ABOVE, BELOW = 0.38, 0.55, 0.66  # inches: of the title, of the parts above and below the ribbons
WORKERS = 40  # that the legend names


@dataclass(frozen=True, slots=True)
class Letters:
    """The fonts for some texts: the usual one, then those with the letters that it lacks. `lost`: letters without a font."""

    families: tuple[str, ...]
    lost: frozenset[str]

    def write(self, text: str, most: int) -> str:
        """Return the text as the fonts can write it, cut in the middle to at most `most` letters."""
        shown = "".join(c.encode("ascii", "backslashreplace").decode() if c in self.lost else c for c in text)
        return shown if len(shown) <= most else f"{shown[: most // 2]}…{shown[len(shown) - most + most // 2 + 1 :]}"


def choose_letters(texts: Iterable[str]) -> Letters:
    """Choose the fonts for these texts. The installed fonts are searched only if the usual one lacks a letter."""
    from matplotlib.font_manager import FontProperties, fontManager, get_font

    families, missing = ["sans-serif"], {c for text in texts for c in text}
    usual = [f for f in fontManager.ttflist if f.style == "normal" and f.weight in {400, "normal", "regular"}]
    upright = {f.name: f.fname for f in usual if not f.name.startswith("Last Resort")}  # it has only boxes
    others = [(name, upright[name]) for name in sorted(upright, key=lambda name: ("Sans" not in name, name))]
    for family, file in [("sans-serif", fontManager.findfont(FontProperties())), *others]:
        if not missing:
            break
        with suppress(RuntimeError, OSError, ValueError):  # a font that cannot be read, such as one of pictures
            has = get_font(file).get_charmap()
            if had := {c for c in missing if ord(c) in has}:
                families += [family] * (family not in families)
                missing -= had
    return Letters(tuple(families), frozenset(missing))


def draw_story(story: Story, title: str | None = "", *, inches: float = WIDE, dpi: int = 110) -> bytes:
    """Return the picture as PNG bytes, `inches` wide. `title` None: without one. The same story gives the same bytes.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    out = BytesIO()
    try:
        make_figure(story, title, inches=inches, dpi=dpi).savefig(out, format="png")
    except ModuleNotFoundError as error:
        raise ConfigError(f"A picture needs the library {error.name}. Type: pip install 'matplotlib>=3.9'") from None
    return out.getvalue()


def make_figure(story: Story, title: str | None = "", *, inches: float = WIDE, dpi: int = 110) -> "Figure":
    """Return the picture before it is written."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ribbons = find_spans(story)
    rows = {partition: row for row, partition in enumerate(ribbons)}
    colours = _choose_colours(ribbons.values())
    sentence = story.epochs[-1].sentence if story.epochs else f"Group {story.group}: no epoch yet"
    heading = None if title is None else title or sentence
    letters = choose_letters([*rows, *(m.text for m in story.moments), heading or "", "…"])
    tall = min(TALL, ROW * max(len(rows), 4))
    row = min(ROW, tall / max(len(rows), 1))
    with rc_context({"font.family": letters.families, "text.parse_math": False}):
        figure = Figure(figsize=(inches, tall), dpi=dpi, facecolor=PAPER)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        note = _name_rows(axes, rows, letters, inches, ceil(LINE / row))
        left = 0.2 + max((label.get_window_extent().width / dpi for label in axes.get_yticklabels()), default=0.9)
        wide = inches - left - 0.2
        lines = _draw_legend(axes, colours, bool(story.refused), wide, tall)
        above, below = ABOVE + (TITLE if heading is not None else 0), BELOW + 0.21 * lines
        high = tall + above + below
        figure.set_size_inches(inches, high)
        axes.set_position((left / inches, below / high, wide / inches, tall / high))
        _draw_ribbons(axes, story, ribbons, rows, colours, row)
        _draw_ticks(axes, story, rows)
        _draw_moments(axes, story, len(rows), wide, letters)
        _set_time(axes, story, wide, note)
        if heading is not None:
            shown = letters.write(heading, int(wide / 0.105))
            at = 1 - 0.26 / high
            figure.text(left / inches, at, shown, color=INK, fontsize=13, fontweight="bold", va="center")
    return figure


def _choose_colours(ribbons: Iterable[Sequence[Span]]) -> Mapping[str, str]:
    owners = sorted({s.owner for ribbon in ribbons for s in ribbon if s.owner})
    return {owner: COLOURS[i % len(COLOURS)] for i, owner in enumerate(owners)}


def _name_rows(axes: "Axes", rows: Mapping[str, int], letters: Letters, inches: float, step: int) -> str:
    """Write every `step`-th name beside its ribbon. Return a note if some are left out."""
    most = int(22 + 0.8 * inches)
    shown = list(rows)[::step]
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.set_yticks(
        [rows[name] for name in shown], [letters.write(name, most) for name in shown], color=INK, fontsize=9
    )
    axes.tick_params(axis="y", length=0)
    return f"1 of {step} names is shown" if step > 1 else ""


def _draw_ribbons(
    axes: "Axes",
    story: Story,
    ribbons: Mapping[str, Sequence[Span]],
    rows: Mapping[str, int],
    colours: Mapping[str, str],
    row: float,
) -> None:
    """Draw the ribbons, faded from the end of an owner until the epoch that gave the partition to another worker."""
    from matplotlib.collections import PolyCollection

    spans = [span for ribbon in ribbons.values() for span in ribbon]
    half = 0.43 if row >= LINE else 0.5  # thin ribbons have no gaps

    def place(span: Span, start: float) -> list[tuple[float, float]]:
        y, x, end = rows[span.partition], start - story.since, span.end - story.since
        return [(x, y - half), (end, y - half), (end, y + half), (x, y + half)]

    faces = [colours[span.owner] if span.owner else UNOWNED for span in spans]
    edge = 0.8 if row >= LINE else 0.0
    axes.add_collection(
        PolyCollection([place(s, s.start) for s in spans], facecolors=faces, edgecolors=PAPER, linewidths=edge)
    )
    ends = [(m.gone, m.at) for m in story.moments if m.gone]
    faded = [place(s, at) for s in spans for gone, at in ends if s.owner == gone and s.start < at < s.end]
    axes.add_collection(PolyCollection(faded, facecolors=PAPER, alpha=0.62, linewidths=0))


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


def _draw_moments(axes: "Axes", story: Story, height: int, wide: float, letters: Letters) -> None:
    """Draw a line for each moment, and the number of each epoch. A label that would touch another is one row higher."""
    width = max(story.until - story.since, 1.0)
    last = [-width, -width]
    for moment in story.moments:
        x = moment.at - story.since
        axes.axvline(x, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=4)
        text = letters.write(moment.text, 60)
        room = 0.085 / wide * width * len(text)
        level = 0 if x - last[0] > room or last[0] < last[1] else 1
        last[level] = x
        axes.annotate(
            text,
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


def _set_time(axes: "Axes", story: Story, wide: float, note: str) -> None:
    width = max(story.until - story.since, 1.0)
    axes.set_xlim(0, width)
    axes.tick_params(axis="x", colors=QUIET, labelsize=9, length=0, pad=16)
    unit, seconds = next((u, s) for u, s in UNITS if width >= 10 * s or s == 1)
    step = next((s for s in STEPS if width / s <= 1.2 * wide), width)
    ticks = [i * step for i in range(int(width / step) + 1)]
    axes.set_xticks(ticks, [f"{tick / seconds:g}" for tick in ticks])
    axes.set_xlabel(f"{unit}     {note}".strip(), color=QUIET, fontsize=9, loc="left")
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(False)


def _draw_legend(axes: "Axes", colours: Mapping[str, str], refused: bool, wide: float, tall: float) -> int:
    """Draw the legend and return its number of lines."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = [Patch(facecolor=c, label=w) for w, c in list(colours.items())[:WORKERS]]
    if (more := len(colours) - WORKERS) > 0:
        handles.append(Patch(facecolor=PAPER, label=f"and {more} more workers"))
    handles.append(Line2D([], [], color=QUIET, marker="|", linestyle="", markersize=9, label="commit"))
    if refused:
        handles.append(Line2D([], [], color=REFUSED, marker="X", linestyle="", markersize=8, label="write refused"))
    each = [0.42 + 0.082 * len(str(handle.get_label())) for handle in handles]
    columns = len(handles) if sum(each) <= wide else max(1, int(wide / max(each)))
    axes.legend(
        handles=handles,
        loc="upper right",
        bbox_to_anchor=(1.0, -(BELOW - 0.12) / tall),
        ncols=columns,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.1,
        columnspacing=1.3,
        borderaxespad=0,
        borderpad=0,
    )
    return ceil(len(handles) / columns)
