"""The verifier's own reading of a Delta log: plain JSON and Parquet, no Delta library, so that it can contradict one.

Law: `read` gives the files and transactions that the newest version holds, whether its past stands in a checkpoint or in
JSON; a log with a hole in it raises.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from rota.errors import DataError

VERSION = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d+\.\d+)?\.parquet")


@dataclass(frozen=True, slots=True)
class Commit:
    """One version: what its `commitInfo` says (`at` in seconds), which files it added and removed, which transactions."""

    version: int
    at: float
    info: Mapping[str, Any]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    transactions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Log:
    """The newest version of a table: `files` (path below the table -> rows, None if unsaid), and the commits in order."""

    version: int
    files: Mapping[str, int | None]
    transactions: Mapping[str, int]
    commits: tuple[Commit, ...]


def exists(table: Path) -> bool:
    """Whether there is a Delta log at all."""
    return any((table / "_delta_log").glob("*.json"))


def read(table: Path) -> Log:
    """The table's newest version. Raises DataError where the log has a hole or no beginning."""
    folder = table / "_delta_log"
    versions = sorted((int(m[1]), p) for p in folder.glob("*.json") if (m := VERSION.fullmatch(p.name)))
    base, files, transactions = _checkpoint(folder)
    if not versions and base < 0:
        raise DataError(f"{table} is no Delta table: there is no _delta_log. Check the path")
    commits = tuple(_commit(version, path) for version, path in versions)
    expected = base
    for commit in commits:
        if commit.version <= base:
            continue
        if commit.version != expected + 1:
            raise DataError(f"The log of {table} has no version {expected + 1}. Restore the file, or the table")
        expected = commit.version
        rows = dict(_rows(folder / f"{commit.version:020}.json"))
        for path in commit.removed:
            files.pop(path, None)
        files.update({path: rows[path] for path in commit.added})
        transactions.update(commit.transactions)
    return Log(expected, files, transactions, commits)


def commits(table: Path, after: int = -1) -> Iterator[Commit]:
    """The versions after `after` that are there now, in order; cheap enough to poll."""
    version = after + 1
    while (path := table / "_delta_log" / f"{version:020}.json").exists():
        yield _commit(version, path)
        version += 1


def _actions(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        if line:
            yield json.loads(line)


def _commit(version: int, path: Path) -> Commit:
    info: dict[str, Any] = {}
    added, removed, transactions = [], [], {}
    for action in _actions(path):
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "add" in action:
            added.append(unquote(action["add"]["path"]))
        elif "remove" in action:
            removed.append(unquote(action["remove"]["path"]))
        elif "txn" in action:
            transactions[action["txn"]["appId"]] = int(action["txn"]["version"])
    return Commit(version, float(info.get("timestamp", 0)) / 1000, info, tuple(added), tuple(removed), transactions)


def _rows(path: Path) -> Iterator[tuple[str, int | None]]:
    for action in _actions(path):
        if "add" in action:
            stats = json.loads(action["add"].get("stats") or "{}")
            yield unquote(action["add"]["path"]), stats.get("numRecords")


def _checkpoint(folder: Path) -> tuple[int, dict[str, int | None], dict[str, int]]:
    """Version, files and transactions of the newest checkpoint; -1 and nothing without one."""
    import pyarrow.parquet as pq

    found: dict[int, list[Path]] = {}
    for path in folder.glob("*.checkpoint*.parquet"):
        if match := CHECKPOINT.fullmatch(path.name):
            found.setdefault(int(match[1]), []).append(path)
    if not found:
        return -1, {}, {}
    version = max(found)
    files: dict[str, int | None] = {}
    transactions: dict[str, int] = {}
    for path in found[version]:
        for row in pq.read_table(path, columns=["add", "txn"]).to_pylist():
            if row["add"] and row["add"]["path"]:
                stats = json.loads(row["add"].get("stats") or "{}")
                files[unquote(row["add"]["path"])] = stats.get("numRecords")
            if row["txn"] and row["txn"]["appId"]:
                transactions[row["txn"]["appId"]] = int(row["txn"]["version"])
    return version, files, transactions
