"""The `commitInfo` of rota's commits in the table's log: how it is written and parsed.

Law: `parse_entries` parses what `describe_commit` returns. It skips commits of other programs.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from rota.ids import rename_id
from rota.ledger.values import Batch, LogEntry

T = TypeVar("T")
KEYS = (  # `base`: see rota/ledger/foreign_commits.py
    "op", "commit", "run", "group", "pipeline", "incarnation", "attempt", "epoch", "tokens", "ranges", "rows", "bad",
    "seconds", "base",
)  # fmt: skip
DOCUMENTS = ("tokens", "ranges", "rows", "bad")  # the keys whose value is JSON


def describe_step(op: str, group: str, pipeline: str, tokens: Mapping[str, int] | None = None) -> dict[str, str]:
    """Return the `commitInfo` of a commit without a batch: `rota.<key>` -> text."""
    stated = {**dict.fromkeys(KEYS, ""), **dict.fromkeys(DOCUMENTS, "{}"), "epoch": "0", "seconds": "0.000"}
    stated |= {
        "op": op,
        "commit": uuid.uuid4().hex,
        "group": group,
        "pipeline": pipeline,
        "tokens": _json(tokens or {}),
    }
    return {f"rota.{key}": value for key, value in stated.items()}


def describe_commit(batch: Batch, group: str, tokens: Mapping[str, int], pipeline: str = "") -> dict[str, str]:
    """Return the `commitInfo` of the commit of a batch."""
    step = describe_step(batch.op, group, pipeline, {p: tokens[p] for p in batch.ranges if p in tokens})
    ranges = "rota.ranges"
    if batch.op == "replay":  # a replay moves no offset
        del step[ranges]
        ranges = "rota.replayed"
    return step | {
        "rota.commit": batch.id,
        "rota.run": batch.run,
        "rota.incarnation": batch.incarnation,
        "rota.attempt": batch.attempt,
        "rota.epoch": str(batch.epoch),
        ranges: _json({p: list(r) for p, r in batch.ranges.items()}),
        "rota.rows": _json(batch.rows),
        "rota.bad": _json(batch.bad),
        "rota.seconds": f"{batch.seconds:.3f}",
        **({"rota.index": batch.index} if batch.index else {}),
    }


def parse_entries(entries: Iterable[Mapping[str, object]]) -> Iterator[LogEntry]:
    """Yield the entries of rota's commits. `entries` are infos, newest first. In commits from before a rename, the
    partitions get their present ids."""
    renamed: list[tuple[str, str]] = []  # (old, new) names, the earliest rename first
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
    """Return the entry of a commit of rota from its info; None for a commit of another program."""
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
        took=op == "adopt"
        and str(entry.get("rota.took", "1")) == "1",  # an older rota does not state it, and may have taken rows
        index=str(entry.get("rota.index", "")),
    )


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
