"""What the data plane asks of a table: offsets, tokens and rows change together, in one commit, or not at all.

A *batch* is one offset range of each of its partitions. The table itself refuses the second writer of a partition, with
or without ZooKeeper; its log says afterwards what happened.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from rota.ids import key_of, partition_id, pipeline_of

T = TypeVar("T")
PARTITION, OFFSET = "_partition", "_offset"  # the two columns of every row
KEYS = (
    "op", "commit", "run", "group", "pipeline", "incarnation", "attempt", "epoch", "tokens", "ranges", "rows", "bad",
    "seconds", "base",
)  # fmt: skip
DOCUMENTS = ("tokens", "ranges", "rows", "bad")  # the keys whose value is JSON


@dataclass(frozen=True, slots=True)
class DataFile:
    """A written Parquet file: `path` below the table's folder, and what its footer says."""

    path: str
    partition: str
    size: int
    rows: int
    modified: int  # ms
    statistics: str  # JSON, as Delta wants it
    columns: str  # the schema that Spark wrote into it, JSON


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit makes visible. `id` is fresh per attempt, per table and per set of partitions: never the run id."""

    id: str
    run: str
    incarnation: str
    attempt: str
    epoch: int
    ranges: Mapping[str, tuple[int, int]]
    files: tuple[DataFile, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    bad: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    op: str = "commit"


@dataclass(frozen=True, slots=True)
class Claimed:
    """A snapshot of the table in which every token is the claimant's own: the base of the compare-and-set. `entry` is what
    the log says at its version.

    `offsets` are the partitions' next unread offsets; `newer` are those that were not claimed because the table has
    seen a greater token (partition -> that token).
    """

    snapshot: object
    version: int
    table: str  # the table's own id, which another table at the same path would not have
    columns: str  # its schema, JSON
    tokens: Mapping[str, int]
    offsets: Mapping[str, int]
    newer: Mapping[str, int]
    entry: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the table says of one partition now; None: it never heard of it. `table` is its own id, None without one."""

    offset: int | None
    token: int | None
    table: str | None


@dataclass(frozen=True, slots=True)
class Past:
    """One commit as the log tells it."""

    version: int
    at: float
    op: str
    group: str
    commit: str
    run: str
    attempt: str
    epoch: int
    tokens: Mapping[str, int]
    ranges: Mapping[str, tuple[int, int]]
    rows: Mapping[str, int]
    bad: Mapping[str, int]
    seconds: float

    def passed(self, partition: str, offset: int) -> bool:
        """Whether it brought the partition beyond this offset."""
        return partition in self.ranges and self.ranges[partition][1] > offset

    def share(self, partition: str) -> float:
        """The seconds that fall to one of its partitions, by rows (evenly where there are none)."""
        rows = sum(self.rows.values())
        return self.seconds * (self.rows.get(partition, 0) / rows if rows else 1 / len(self.ranges))


class Table(Protocol):
    """Where batches are published. Every method opens the table anew; nothing is remembered between calls."""

    def standing(self, partitions: tuple[str, ...]) -> Mapping[str, Standing]:
        """What the table says of the partitions now; writes nothing, also when there is no table. Raises ForeignTable."""
        ...

    def claim(self, tokens: Mapping[str, int], starts: Mapping[str, int], *, known: bool = False) -> Claimed:
        """Fences every older owner: after it, a commit on a snapshot taken before is refused.

        `starts` is where a partition begins that the table never heard of; it is written with the first claim, also for
        those that are not claimed. A table
        that is not there is made, unless it is `known` to have been: then raises EnvironmentFailed.
        """
        ...

    def commit(self, claimed: Claimed, batch: Batch, follows: bool = True) -> int:
        """The version that holds the batch, exactly once, whatever was lost on the way. Raises Fenced, OffsetGap.

        `follows`: the ranges must start where the table ends.
        """
        ...

    def past(self, since: int = 0) -> tuple[Past, ...]:
        """The commits after version `since`, newest first."""
        ...


def metadata(batch: Batch, group: str, tokens: Mapping[str, int], pipeline: str = "") -> dict[str, str]:
    """What a commit says of itself in the log: `rota.<key>` -> text."""
    ranges = "replayed" if batch.op == "replay" else "ranges"  # a replay moves no offset
    said = {
        "op": batch.op,
        "commit": batch.id,
        "run": batch.run,
        "group": group,
        "pipeline": pipeline,
        "incarnation": batch.incarnation,
        "attempt": batch.attempt,
        "epoch": str(batch.epoch),
        "tokens": _json({p: tokens[p] for p in batch.ranges if p in tokens}),
        ranges: _json({p: list(r) for p, r in batch.ranges.items()}),
        "rows": _json(batch.rows),
        "bad": _json(batch.bad),
        "seconds": f"{batch.seconds:.3f}",
        "base": "",  # set where offsets move
    }
    return {f"rota.{key}": value for key, value in said.items()}


def past(entries: Iterable[Mapping[str, object]]) -> Iterator[Past]:
    """The commits of ours among the newest of a log, newest first. What was done under a former name of the pipeline is told
    of the partitions as they are called now."""
    renamed: list[tuple[str, str]] = []  # the former first
    for entry in entries:
        if one := told(entry):
            yield _renamed(one, renamed) if renamed else one
            if one.op == "rename":
                renamed[:0] = json.loads(str(entry["rota.renamed"])).items()


def _renamed(one: Past, renamed: Iterable[tuple[str, str]]) -> Past:
    def named(by_partition: Mapping[str, T]) -> Mapping[str, T]:
        for old, new in renamed:
            by_partition = {renamed_id(p, old, new): value for p, value in by_partition.items()}
        return by_partition

    return replace(one, tokens=named(one.tokens), ranges=named(one.ranges), rows=named(one.rows), bad=named(one.bad))


def renamed_id(partition: str, old: str, new: str) -> str:
    """The partition's id after its pipeline `old` was renamed to `new`."""
    return partition_id(new, key_of(partition)) if pipeline_of(partition) == old else partition


def told(entry: Mapping[str, object]) -> Past | None:
    """A commit of ours from its entry in the log; None for the commit of somebody else."""
    if "rota.op" not in entry:
        return None
    op = str(entry["rota.op"])
    found = {k: json.loads(str(entry.get(f"rota.{k}", "{}"))) for k in (*DOCUMENTS, "replayed")}
    ranges = found["replayed"] if op == "replay" else found["ranges"]
    return Past(
        version=int(str(entry["version"])),
        at=float(str(entry.get("timestamp", 0))) / 1000,
        op=op,
        group=str(entry.get("rota.group", "")),
        commit=str(entry.get("rota.commit", "")),
        run=str(entry.get("rota.run", "")),
        attempt=str(entry.get("rota.attempt", "")),
        epoch=int(str(entry.get("rota.epoch", 0))),
        tokens=found["tokens"],
        ranges={p: (int(a), int(b)) for p, (a, b) in ranges.items()},
        rows=found["rows"],
        bad=found["bad"],
        seconds=float(str(entry.get("rota.seconds", 0))),
    )


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
