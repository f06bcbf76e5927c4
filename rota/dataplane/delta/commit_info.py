"""What a commit says of itself in the table's log, written and read.

Law: what `describe_commit` writes, `parse_entries` reads back; a commit of somebody else is no entry of ours.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from rota.dataplane.ports import Batch, LogEntry
from rota.ids import rename_id

T = TypeVar("T")
PARTITION, OFFSET = "_partition", "_offset"  # the two columns of every row
KEYS = (
    "op", "commit", "run", "group", "pipeline", "incarnation", "attempt", "epoch", "tokens", "ranges", "rows", "bad",
    "seconds", "base",
)  # fmt: skip
DOCUMENTS = ("tokens", "ranges", "rows", "bad")  # the keys whose value is JSON


def describe_commit(batch: Batch, group: str, tokens: Mapping[str, int], pipeline: str = "") -> dict[str, str]:
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


def parse_entries(entries: Iterable[Mapping[str, object]]) -> Iterator[LogEntry]:
    """The commits of ours among the newest of a log, newest first. What was done under a former name of the pipeline is told
    of the partitions as they are called now."""
    renamed: list[tuple[str, str]] = []  # the former first
    for entry in entries:
        if one := parse_entry(entry):
            yield _rename_entry(one, renamed) if renamed else one
            if one.op == "rename":
                renamed[:0] = json.loads(str(entry["rota.renamed"])).items()


def _rename_entry(one: LogEntry, renamed: Iterable[tuple[str, str]]) -> LogEntry:
    def named(by_partition: Mapping[str, T]) -> Mapping[str, T]:
        for old, new in renamed:
            by_partition = {rename_id(p, old, new): value for p, value in by_partition.items()}
        return by_partition

    return replace(one, tokens=named(one.tokens), ranges=named(one.ranges), rows=named(one.rows), bad=named(one.bad))


def parse_entry(entry: Mapping[str, object]) -> LogEntry | None:
    """A commit of ours from its entry in the log; None for the commit of somebody else."""
    if "rota.op" not in entry:
        return None
    op = str(entry["rota.op"])
    found = {k: json.loads(str(entry.get(f"rota.{k}", "{}"))) for k in (*DOCUMENTS, "replayed")}
    ranges = found["replayed"] if op == "replay" else found["ranges"]
    return LogEntry(
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
