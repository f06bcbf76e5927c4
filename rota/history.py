"""What happened in a group: its epochs and moves, the commits in its tables, the writes that were refused.

Law: it shows what ZooKeeper's audit and the tables' logs say and nothing of its own memory; a reader never changes either.

`rota.history(group)` gives the moves as a pandas DataFrame; `draw` gives the picture: a ribbon a partition over time,
coloured by owner, a tick a commit, a red cross a refused write, a line for each worker that joined, left or was struck.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rota.errors import RotaError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from rota.coordination.records import Epoch
    from rota.coordination.tree import Tree
    from rota.pipeline import Pipeline

INK, QUIET, PAPER, NOBODY, REFUSED = "#22303c", "#7b8a97", "#ffffff", "#e9edf0", "#d7263d"
COLOURS = (  # told apart also by the colour-blind; no red among them: red is the refused write
    "#3d7ea6", "#e9a03b", "#4fa37f", "#8e6bb0", "#c9b458", "#5bb5c9", "#b0719a", "#7f8c5a", "#9c7a5b", "#5f74c4",
)  # fmt: skip
UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800)


@dataclass(frozen=True, slots=True)
class Moved:
    """A partition that changed hands in an epoch; `giver` None: it had no owner, `taker` None: it lost the one it had."""

    partition: str
    giver: str | None
    taker: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """One published epoch; `at` in seconds since 1970, by ZooKeeper's clock; `before` and `after` count partitions."""

    epoch: int
    at: float
    sentence: str
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    moves: tuple[Moved, ...] = ()
    moved: int = 0
    run_id: str = ""
    before: Mapping[str, int] = field(default_factory=dict)
    after: Mapping[str, int] = field(default_factory=dict)
    measures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tick:
    """A commit of one partition, or a write of it that was refused."""

    at: float
    partition: str
    run_id: str
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """Something a person wants a line for: "w2 joined", "w2 killed"; `gone`: the worker that is dead from then on."""

    at: float
    text: str
    gone: str | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """All of it, each in order of time; `until` is the right edge of the picture."""

    group: str
    epochs: tuple[EpochSeen, ...]
    commits: tuple[Tick, ...]
    refused: tuple[Tick, ...]
    moments: tuple[Moment, ...]
    until: float

    @property
    def since(self) -> float:
        """The left edge: the first thing that happened."""
        times = [e.at for e in self.epochs] + [t.at for t in (*self.commits, *self.refused)]
        return min([*times, *(m.at for m in self.moments)], default=self.until)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time in which a partition was one worker's by target; None: nobody's."""

    partition: str
    owner: str | None
    start: float
    end: float


def read(tree: "Tree", commits: Iterable[Tick], told: Sequence[Moment] = ()) -> Story:
    """The story of a group: epochs and refused writes from ZooKeeper, the commits given, and the moments of both.

    `told` are moments that somebody knows better than the audit (a kill, at the second of the signal): the audit's own
    line for that worker's end is left out.
    """
    epochs = tuple(_epoch(record) for record in tree.epochs())
    struck = {moment.gone for moment in told}
    moments = [m for epoch in epochs for m in _moments(epoch) if m.gone is None or m.gone not in struck]
    refused = tuple(Tick(r.at, r.partition, r.run_id) for r in tree.refusals().ring)
    return Story(
        tree.group,
        epochs,
        tuple(sorted(commits, key=lambda t: t.at)),
        refused,
        tuple(sorted([*moments, *told], key=lambda m: m.at)),
        tree.store.now(),
    )


def told(tree: "Tree") -> Story:
    """The story with the commits of every pipeline of the group whose table can be read from here."""
    from rota.pipeline import load
    from rota.settings import Settings

    meta, commits = tree.meta().id, []
    try:
        pipelines = load(Settings.from_environment().pipelines).of_group(tree.group)
    except RotaError:
        pipelines = ()
    for pipeline in pipelines:
        with suppress(RotaError):
            commits += commits_of(pipeline, tree.group, meta)
    return read(tree, commits)


def commits_of(pipeline: "Pipeline", group: str, meta: str) -> list[Tick]:
    """A tick for each partition of each batch in the log of the pipeline's table."""
    from rota.registry import open_tables

    past = open_tables(pipeline, group, meta).main.read_log()
    return [Tick(one.at, p, one.run, one.rows.get(p, 0)) for one in past if one.op == "commit" for p in one.ranges]


def history(group: str = "default") -> "pd.DataFrame":
    """The moves of every epoch that is still in the audit, a row a move; reads ROTA_ZOOKEEPER."""
    from rota.coordination.client import opened
    from rota.coordination.tree import Tree
    from rota.settings import Settings

    settings = Settings.from_environment()
    with opened(settings) as store:
        return frame(read(Tree(store, group), ()))


def _epoch(record: "Epoch") -> EpochSeen:
    moves = tuple(Moved(m.partition, m.giver, m.taker, m.reason) for m in record.moves)
    return EpochSeen(
        record.epoch, record.at, record.sentence, record.joined, record.left, moves, record.moved, record.run_id,
        record.before, record.after, record.measures,
    )  # fmt: skip


def _moments(epoch: EpochSeen) -> Iterable[Moment]:
    """Who joined, left or was drained, as this epoch saw it."""
    if epoch.joined:
        yield Moment(epoch.at, f"{', '.join(epoch.joined)} joined")
    for worker in epoch.left:
        yield Moment(epoch.at, f"{worker} left", worker)
    for worker, count in epoch.before.items():
        if count and not epoch.after.get(worker) and worker not in epoch.left:
            yield Moment(epoch.at, f"{worker} drained")


def frame(story: Story) -> "pd.DataFrame":
    """A row a move: epoch, at (UTC), partition, from, to, reason, sentence, run_id."""
    import pandas as pd

    rows = [
        (e.epoch, pd.Timestamp(e.at, unit="s", tz="UTC"), m.partition, m.giver, m.taker, m.reason, e.sentence, e.run_id)
        for e in story.epochs for m in e.moves
    ]  # fmt: skip
    columns = ["epoch", "at", "partition", "from", "to", "reason", "sentence", "run_id"]
    return pd.DataFrame.from_records(rows, columns=columns)


def spans(story: Story) -> dict[str, list[Span]]:
    """Per partition, in order of name, who it belonged to from the first epoch known to the right edge."""
    changes: dict[str, list[tuple[float, str | None, str | None]]] = {}
    for epoch in story.epochs:
        for move in epoch.moves:
            changes.setdefault(move.partition, []).append((epoch.at, move.giver, move.taker))
    ribbons: dict[str, list[Span]] = {}
    for partition, seen in sorted(changes.items()):
        start, owner = story.since, seen[0][1]  # older epochs may be gone: the first giver held it until then
        ribbon = []
        for at, _, taker in seen:
            ribbon.append(Span(partition, owner, start, at))
            start, owner = at, taker
        ribbon.append(Span(partition, owner, start, story.until))
        ribbons[partition] = [s for s in ribbon if s.end > s.start]
    return ribbons


def draw(story: Story, title: str = "") -> bytes:
    """The picture as PNG bytes; same story, same picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ribbons = spans(story)
    figure = Figure(figsize=(13, 2.2 + 0.3 * min(max(len(ribbons), 4), 64)), dpi=110, facecolor=PAPER)
    axes = figure.add_axes((0.085, 0.14, 0.9, 0.68))
    rows = {partition: row for row, partition in enumerate(ribbons)}
    colours = _colours(ribbons.values())
    _ribbons(axes, ribbons, rows, colours, story.since)
    _orphaned(axes, story, ribbons, rows)
    _ticks(axes, story, rows)
    _lines(axes, story, len(rows))
    _frame(axes, story, rows)
    _legend(axes, colours, bool(story.refused))
    figure.text(0.085, 0.945, title or _title(story), color=INK, fontsize=13, fontweight="bold", va="center")
    canvas, out = FigureCanvasAgg(figure), BytesIO()
    canvas.print_figure(out, format="png")
    return out.getvalue()


def _title(story: Story) -> str:
    return story.epochs[-1].sentence if story.epochs else f"Group {story.group}: no epoch yet"


def _colours(ribbons: Iterable[Sequence[Span]]) -> Mapping[str, str]:
    owners = sorted({s.owner for ribbon in ribbons for s in ribbon if s.owner})
    return {owner: COLOURS[i % len(COLOURS)] for i, owner in enumerate(owners)}


def _ribbons(
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


def _orphaned(axes: "Axes", story: Story, ribbons: Mapping[str, Sequence[Span]], rows: Mapping[str, int]) -> None:
    """Veils a ribbon from its owner's death until the epoch that gave the partition to somebody else."""
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


def _ticks(axes: "Axes", story: Story, rows: Mapping[str, int]) -> None:
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


def _lines(axes: "Axes", story: Story, height: int) -> None:
    """A line a moment; labels that would touch step up to a second row."""
    width = max(story.until - story.since, 1.0)
    last = [-width, -width]
    for moment in story.moments:
        x = moment.at - story.since
        axes.axvline(x, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=4)
        level = 0 if x - last[0] > 0.012 * width * len(moment.text) * 0.75 else 1
        last[level] = x
        axes.annotate(
            moment.text,
            (x, -0.5),
            (0, 8 + 13 * level),
            textcoords="offset points",
            color=INK,
            fontsize=9,
            ha="center",
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


def _frame(axes: "Axes", story: Story, rows: Mapping[str, int]) -> None:
    width = max(story.until - story.since, 1.0)
    axes.set_xlim(0, width)
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.set_yticks(list(rows.values()) if len(rows) <= 64 else [])
    axes.set_yticklabels(list(rows) if len(rows) <= 64 else [], color=INK, fontsize=9)
    axes.tick_params(axis="x", colors=QUIET, labelsize=9, length=0, pad=16)
    axes.tick_params(axis="y", length=0)
    unit, seconds = next((u, s) for u, s in UNITS if width >= 10 * s or s == 1)
    step = next((s for s in STEPS if width / s <= 14), width)
    axes.set_xticks([i * step for i in range(int(width / step) + 1)])
    axes.set_xticklabels([f"{i * step / seconds:g}" for i in range(int(width / step) + 1)])
    axes.set_xlabel(unit, color=QUIET, fontsize=9, loc="left")
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(False)


def _legend(axes: "Axes", colours: Mapping[str, str], refused: bool) -> None:
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
        ncols=min(len(handles), 12),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.1,
        columnspacing=1.3,
    )


class _Verb(ModuleType):
    """`rota.history` is this module and, called, its verb: the name of both is the same, whichever was imported first."""

    def __call__(self, group: str = "default") -> "pd.DataFrame":
        return history(group)


sys.modules[__name__].__class__ = _Verb
