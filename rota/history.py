"""The history of a group: its epochs and moves, the commits in its tables, the writes that were refused.

Law: it shows what ZooKeeper's audit and the tables' logs say, and changes neither.

`rota.read_moves(group)` returns the moves as a pandas DataFrame. `draw_story` draws the picture: a ribbon for each
partition over time, coloured by owner, a tick for each commit, a red cross for each refused write, and a line for each
worker that joined, left or was killed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any

from rota.errors import RotaError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from rota.coordination.group_reader import GroupReader
    from rota.coordination.records import Epoch
    from rota.pipeline import Pipeline

INK, QUIET, PAPER, NOBODY, REFUSED = "#22303c", "#7b8a97", "#ffffff", "#e9edf0", "#d7263d"
COLOURS = (  # told apart also by the colour-blind; no red among them: red is the refused write
    "#3d7ea6", "#e9a03b", "#4fa37f", "#8e6bb0", "#c9b458", "#5bb5c9", "#b0719a", "#7f8c5a", "#9c7a5b", "#5f74c4",
)  # fmt: skip
WIDE = 13.0  # inches
UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800)


@dataclass(frozen=True, slots=True)
class HistoryMove:
    """A partition that changed its owner in an epoch. `from_worker` None: it had none. `to_worker` None: it has none now.
    `at`: when the target gave it away, or it was claimed, where workers decide alone; in seconds since 1970."""

    partition: str
    from_worker: str | None
    to_worker: str | None
    reason: str
    at: float

    def to_dict(self) -> dict[str, str | float | None]:
        """The move as JSON values; see docs/protocol.md."""
        who = {"from": self.from_worker, "to": self.to_worker}
        return {"partition": self.partition, **who, "reason": self.reason, "at": self.at}


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """One published epoch; `at` in seconds since 1970, by ZooKeeper's clock; `before` and `after` count partitions."""

    epoch: int
    at: float
    sentence: str
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    moves: tuple[HistoryMove, ...] = ()
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
    """An event that the picture marks with a line, such as "w2 joined"; `gone` is the worker that ended then."""

    at: float
    text: str
    gone: str | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """The history of one group, each part in order of time, until `until` (seconds since 1970)."""

    group: str
    epochs: tuple[EpochSeen, ...]
    commits: tuple[Tick, ...]
    refused: tuple[Tick, ...]
    moments: tuple[Moment, ...]
    until: float

    @property
    def since(self) -> float:
        """When the first event happened."""
        times = [e.at for e in self.epochs] + [t.at for t in (*self.commits, *self.refused)]
        times += [move.at for e in self.epochs for move in e.moves]
        return min([*times, *(m.at for m in self.moments)], default=self.until)


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which a partition was `owner`'s, by its target or its claim; None: nobody's."""

    partition: str
    owner: str | None
    start: float
    end: float


def read_story(tree: "GroupReader", commits: Iterable[Tick], moments: Sequence[Moment] = ()) -> Story:
    """Reads epochs and refused writes from ZooKeeper and joins them with the given commits.

    `moments` are known more precisely than the audit knows them, such as the second of a kill. They replace the audit's
    moment for the end of the same worker. Raises CoordinationError.
    """
    epochs = tuple(_convert_epoch(record) for record in tree.epochs())
    known = {moment.gone for moment in moments}
    audited = [m for epoch in epochs for m in _find_moments(epoch) if m.gone is None or m.gone not in known]
    refused = tuple(Tick(r.at, r.partition, r.run_id) for r in tree.refusals().ring)
    return Story(
        tree.group,
        epochs,
        tuple(sorted(commits, key=lambda t: t.at)),
        refused,
        tuple(sorted([*audited, *moments], key=lambda m: m.at)),
        tree.store.now(),
    )


def read_story_with_commits(tree: "GroupReader", pipelines: "Iterable[Pipeline]") -> Story:
    """Reads the story with the commits of these pipelines, of each whose table can be read here. Raises
    CoordinationError."""
    meta, commits = tree.meta().id, []
    for pipeline in pipelines:
        with suppress(RotaError):
            commits += read_commits(pipeline, tree.group, meta)
    return read_story(tree, commits)


def read_commits(pipeline: "Pipeline", group: str, meta: str) -> list[Tick]:
    """A tick for each partition of each batch in the log of the pipeline's table. Raises DataError."""
    from rota.registry import open_tables

    past = open_tables(pipeline, group, meta).main.read_log()
    return [Tick(one.at, p, one.run, one.rows.get(p, 0)) for one in past if one.op == "commit" for p in one.ranges]


def read_moves(group: str = "default") -> "pd.DataFrame":
    """Reads the moves of the group's last 200 epochs from ROTA_ZOOKEEPER, a row a move; see `list_moves` for the columns.
    Raises CoordinationError."""
    from rota.coordination.client import opened
    from rota.coordination.group_reader import GroupReader
    from rota.settings import Settings

    settings = Settings.from_environment()
    with opened(settings) as store:
        return list_moves(read_story(GroupReader(store, group), ()))


def _convert_epoch(record: "Epoch") -> EpochSeen:
    moves = tuple(
        HistoryMove(m.partition, m.from_worker, m.to_worker, m.reason, record.find_time(m)) for m in record.moves
    )
    return EpochSeen(
        record.epoch, record.at, record.sentence, record.joined, record.left, moves, record.moved, record.run_id,
        record.before, record.after, record.measures,
    )  # fmt: skip


def _find_moments(epoch: EpochSeen) -> Iterable[Moment]:
    """The workers that joined, left or were drained, as this epoch saw them: at the latest when the first move followed."""

    def find_first(follows: Callable[[HistoryMove], bool]) -> float:
        return min((move.at for move in epoch.moves if follows(move)), default=epoch.at)

    if epoch.joined:
        yield Moment(find_first(lambda m: m.to_worker in epoch.joined), f"{', '.join(epoch.joined)} joined")
    for worker in epoch.left:
        yield Moment(find_first(lambda m, w=worker: m.from_worker == w), f"{worker} left", worker)  # type: ignore[misc]
    for worker, count in epoch.before.items():
        if count and not epoch.after.get(worker) and worker not in epoch.left:
            yield Moment(find_first(lambda m, w=worker: m.from_worker == w), f"{worker} drained")  # type: ignore[misc]


def list_moves(story: Story) -> "pd.DataFrame":
    """A row for each move: epoch, at (UTC), partition, from, to, reason, sentence, run_id."""
    import pandas as pd

    rows = [
        (
            e.epoch, pd.Timestamp(m.at, unit="s", tz="UTC"), m.partition, m.from_worker, m.to_worker, m.reason, e.sentence,
            e.run_id,
        )
        for e in story.epochs for m in e.moves
    ]  # fmt: skip
    columns = ["epoch", "at", "partition", "from", "to", "reason", "sentence", "run_id"]
    return pd.DataFrame.from_records(rows, columns=columns)


def find_spans(story: Story) -> dict[str, list[Span]]:
    """Partition, in order of id -> its owners from the first known epoch to `story.until`."""
    changes: dict[str, list[tuple[float, str | None, str | None]]] = {}
    for epoch in story.epochs:
        for move in epoch.moves:
            changes.setdefault(move.partition, []).append((move.at, move.from_worker, move.to_worker))
    ribbons: dict[str, list[Span]] = {}
    for partition, seen in sorted(changes.items()):
        start, owner = story.since, seen[0][1]  # older epochs may be gone: the first giver held it until then
        ribbon = []
        for at, _, taker in seen:
            at = max(at, start)  # the server's clock may have gone back
            ribbon.append(Span(partition, owner, start, at))
            start, owner = at, taker
        ribbon.append(Span(partition, owner, start, story.until))
        ribbons[partition] = [s for s in ribbon if s.end > s.start]
    return ribbons


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
