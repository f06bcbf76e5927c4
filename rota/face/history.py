"""The history of a group: its epochs and moves, the commits in its tables, the writes that were refused.

Law: it reads ZooKeeper's audit and the tables' logs, and changes neither.

`rota.read_moves(group)` returns the moves as a pandas DataFrame. `rota/face/picture.py` draws a story.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rota.errors import RotaError

if TYPE_CHECKING:
    import pandas as pd

    from rota.coordination.group_reader import GroupReader
    from rota.coordination.records import Epoch, Moved
    from rota.pipeline import Pipeline


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
    epochs: "tuple[Epoch, ...]"
    commits: tuple[Tick, ...]
    refused: tuple[Tick, ...]
    moments: tuple[Moment, ...]
    until: float

    @property
    def since(self) -> float:
        """When the first event happened."""
        times = [e.at for e in self.epochs] + [t.at for t in (*self.commits, *self.refused)]
        times += [e.find_time(move) for e in self.epochs for move in e.moves]
        return min([*times, *(m.at for m in self.moments)], default=self.until)


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which `owner` had a partition, by its target or its claim; None: no worker had it."""

    partition: str
    owner: str | None
    start: float
    end: float


def read_story(
    tree: "GroupReader",
    commits: Iterable[Tick],
    moments: Sequence[Moment] = (),
    epochs: "Sequence[Epoch] | None" = None,
) -> Story:
    """Read epochs and refused writes from ZooKeeper, and join them with the given commits. Raises CoordinationError.

    Args:
        tree: the group.
        commits: the commits of its tables.
        moments: events with more exact times than in the audit, such as a kill. They replace the audit's event for the end
            of the same worker.
        epochs: the epochs, if they are not to be read from ZooKeeper.
    """
    epochs = tuple(tree.epochs() if epochs is None else epochs)
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


def read_story_with_commits(
    tree: "GroupReader", pipelines: "Iterable[Pipeline]", epochs: "Sequence[Epoch] | None" = None
) -> Story:
    """Read the story with the commits of these pipelines. A table that cannot be read here is left out. Raises
    CoordinationError.
    """
    meta, commits = tree.meta().id, []
    for pipeline in pipelines:
        with suppress(RotaError):
            commits += read_commits(pipeline, tree.group, meta)
    return read_story(tree, commits, epochs=epochs)


def read_commits(pipeline: "Pipeline", group: str, meta: str) -> list[Tick]:
    """Return a tick for each partition of each batch in the log of the pipeline's table. Raises DataError."""
    from rota.registry import open_tables

    past = open_tables(pipeline, group, meta).main.read_log()
    return [Tick(one.at, p, one.run, one.rows.get(p, 0)) for one in past if one.op == "commit" for p in one.ranges]


def read_moves(group: str = "default") -> "pd.DataFrame":
    """Read the moves of the group's last 200 epochs from ROTA_ZOOKEEPER, a row per move; see `list_moves` for the columns.

    Raises:
        CoordinationError: ZooKeeper cannot be read.
    """
    from rota.coordination.client import opened
    from rota.coordination.group_reader import GroupReader
    from rota.settings import Settings

    settings = Settings.from_environment()
    with opened(settings) as store:
        return list_moves(read_story(GroupReader(store, group), ()))


def _find_moments(epoch: "Epoch") -> Iterable[Moment]:
    """Yield the workers that joined, left or lost all partitions in this epoch, at the time of the first such move."""

    def find_first(follows: "Callable[[Moved], bool]") -> float:
        return min((epoch.find_time(move) for move in epoch.moves if follows(move)), default=epoch.at)

    if epoch.joined:
        yield Moment(find_first(lambda m: m.to_worker in epoch.joined), f"{', '.join(epoch.joined)} joined")
    for worker in epoch.left:
        yield Moment(find_first(lambda m, w=worker: m.from_worker == w), f"{worker} left", worker)  # type: ignore[misc]
    for worker, count in epoch.before.items():
        if count and not epoch.after.get(worker) and worker not in epoch.left:
            yield Moment(find_first(lambda m, w=worker: m.from_worker == w), f"{worker} emptied")  # type: ignore[misc]


def list_moves(story: Story) -> "pd.DataFrame":
    """Return a row for each move: epoch, at (UTC), partition, from, to, reason, sentence, run_id."""
    import pandas as pd

    rows = [
        (
            e.epoch, pd.Timestamp(e.find_time(m), unit="s", tz="UTC"), m.partition, m.from_worker, m.to_worker, m.reason,
            e.sentence, e.run_id,
        )
        for e in story.epochs for m in e.moves
    ]  # fmt: skip
    columns = ["epoch", "at", "partition", "from", "to", "reason", "sentence", "run_id"]
    return pd.DataFrame.from_records(rows, columns=columns)


def keep_partition(story: Story, partition: str) -> Story:
    """Return the story of this partition alone. Sentences, counts and moments stay: they are of the group."""
    epochs = [
        e.model_copy(
            update={
                "moves": tuple(m for m in e.moves if m.partition == partition),
                "dropped": (partition,) * (partition in e.dropped),
            }
        )
        for e in story.epochs
    ]
    commits, refused = (tuple(t for t in ticks if t.partition == partition) for ticks in (story.commits, story.refused))
    return replace(story, epochs=tuple(e for e in epochs if e.moves or e.dropped), commits=commits, refused=refused)


def keep_since(story: Story, since: float) -> Story:
    """Return the story from `since` on."""
    return replace(
        story,
        epochs=tuple(e for e in story.epochs if e.at >= since),
        commits=tuple(t for t in story.commits if t.at >= since),
        refused=tuple(t for t in story.refused if t.at >= since),
        moments=tuple(m for m in story.moments if m.at >= since),
    )


def find_spans(story: Story) -> dict[str, list[Span]]:
    """Return partition, in order of id -> its owners from the first known epoch to `story.until`."""
    changes: dict[str, list[tuple[float, str | None, str | None]]] = {}
    for epoch in story.epochs:
        for move in epoch.moves:
            changes.setdefault(move.partition, []).append((epoch.find_time(move), move.from_worker, move.to_worker))
        for partition in epoch.dropped:
            if partition in changes:  # else its owner is unknown
                changes[partition].append((epoch.at, None, None))
    ribbons: dict[str, list[Span]] = {}
    for partition, seen in sorted(changes.items()):
        start, owner = story.since, seen[0][1]  # older epochs may be deleted: the first giver held it until then
        ribbon = []
        for at, _, taker in seen:
            at = max(at, start)  # the server's clock may have been set back
            ribbon.append(Span(partition, owner, start, at))
            start, owner = at, taker
        ribbon.append(Span(partition, owner, start, story.until))
        ribbons[partition] = [s for s in ribbon if s.end > s.start]
    return ribbons
