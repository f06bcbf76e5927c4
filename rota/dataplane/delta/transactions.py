"""All transactions of a Delta table at one version, read once.

Law: what is said here is what delta-rs says of each id at that version, and no other: a checkpoint at or below it and the
commits up to it. delta-rs reads the whole log again for each id that it is asked for. Where the log has a shape that is not
known here (a checkpoint of another kind, commits that were removed, transactions that expire), nothing is said.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
FAR = 1_000  # commits after the checkpoint that `_last_checkpoint` names, above which a newer one is looked for


def read_transactions(log: Path, version: int) -> Mapping[str, int] | None:
    """Id -> version of each transaction in the log folder at `version` of the table; None where delta-rs must be asked."""
    try:
        return _read(log, version)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def _read(log: Path, version: int) -> Mapping[str, int]:
    base, parts = _read_named_checkpoint(log, version) or _find_checkpoint(log, version)
    known: dict[str, int] = {}
    for part in parts:
        known.update(_of_checkpoint(part))
    for at in range(base + 1, version + 1):
        known.update(_of_commit(log / f"{at:020}.json"))
    return known


def _of_checkpoint(part: Path) -> Iterator[tuple[str, int]]:
    """Only the column of transactions is read, however many files the checkpoint names."""
    for rows in pq.ParquetFile(part).iter_batches(columns=["txn"]):
        for txn in rows.column("txn").drop_null().to_pylist():
            yield _check_lasting(txn)


def _of_commit(commit: Path) -> Iterator[tuple[str, int]]:
    """Of one id twice in a commit delta-rs takes the first."""
    lines = commit.read_text(encoding="utf-8").split("\n")
    found = [txn for line in lines if '"txn"' in line and (txn := json.loads(line).get("txn"))]
    yield from map(_check_lasting, reversed(found))


def _check_lasting(txn: Mapping[str, Any]) -> tuple[str, int]:
    if txn.get("lastUpdated") is not None:
        raise ValueError("it may expire; ours never do")
    return txn["appId"], int(txn["version"])


def _read_named_checkpoint(log: Path, version: int) -> tuple[int, list[Path]] | None:
    """The checkpoint that `_last_checkpoint` names, so that a long log need not be listed."""
    try:
        said = json.loads((log / "_last_checkpoint").read_text())
        base, parts = int(said["version"]), said.get("parts")
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not version - FAR <= base <= version:
        return None
    names = [f".{n + 1:010}.{parts:010}" for n in range(parts)] if parts else [""]
    paths = [log / f"{base:020}.checkpoint{name}.parquet" for name in names]
    return (base, paths) if all(path.exists() for path in paths) else None


def _find_checkpoint(log: Path, version: int) -> tuple[int, list[Path]]:
    """The newest whole checkpoint; without one the log is read from its start."""
    there: dict[tuple[int, int], list[Path]] = {}
    for path in log.iterdir():
        if (match := CHECKPOINT.fullmatch(path.name)) and int(match[1]) <= version:
            there.setdefault((int(match[1]), int(match[3] or 1)), []).append(path)
    whole = [(base, sorted(paths)) for (base, parts), paths in there.items() if len(paths) == parts]
    return max(whole, default=(-1, []))
