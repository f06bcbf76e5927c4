"""The verifier's own reader of a Delta log. It reads JSON and Parquet without a Delta library, so it can contradict one.

Invariant: `read` returns the files and transactions of the newest version, from a checkpoint or from JSON. A log with a
missing version raises. A table is a folder, on a disk or in a bucket.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from rota.errors import DataError

if TYPE_CHECKING:
    from pyarrow import fs

LOG = "_delta_log"
VERSION = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d+\.\d+)?\.parquet")


@dataclass(frozen=True, slots=True)
class Commit:
    """One version: its `commitInfo` (`at` in seconds), the files that it added and removed, and its transactions."""

    version: int
    at: float
    info: Mapping[str, Any]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    transactions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Log:
    """The newest version of a table: `files` (path below the table -> rows, None if unknown), and the commits in order."""

    version: int
    files: Mapping[str, int | None]
    transactions: Mapping[str, int]
    commits: tuple[Commit, ...]


def exists(table: "fs.FileSystem") -> bool:
    """Return whether there is a Delta log."""
    return any(VERSION.fullmatch(name) for name in _list_names(table))


def read(table: "fs.FileSystem") -> Log:
    """Return the table's newest version. Raises DataError if the log misses a version."""
    names = _list_names(table)
    versions = sorted(int(m[1]) for name in names if (m := VERSION.fullmatch(name)))
    base, files, transactions = _checkpoint(table, names)
    if not versions and base < 0:
        raise DataError(f"{table.base_path} is no Delta table: there is no {LOG}. Check the path")
    commits = tuple(_commit(table, version) for version in versions)
    expected = base
    for commit in commits:
        if commit.version <= base:
            continue
        if commit.version != expected + 1:
            raise DataError(
                f"The log of {table.base_path} has no version {expected + 1}. Restore the file, or the table"
            )
        expected = commit.version
        rows = dict(_rows(table, commit.version))
        for path in commit.removed:
            files.pop(path, None)
        files.update({path: rows[path] for path in commit.added})
        transactions.update(commit.transactions)
    return Log(expected, files, transactions, commits)


def commits(table: "fs.FileSystem", after: int = -1) -> Iterator[Commit]:
    """Yield the existing versions after `after`, in order; cheap enough to poll."""
    version = after + 1
    while table.get_file_info(_name(version)).is_file:
        yield _commit(table, version)
        version += 1


def _name(version: int) -> str:
    return f"{LOG}/{version:020}.json"


def _list_names(table: "fs.FileSystem") -> list[str]:
    from pyarrow import fs

    return [one.base_name for one in table.get_file_info(fs.FileSelector(LOG, allow_not_found=True))]


def _actions(table: "fs.FileSystem", version: int) -> Iterator[dict[str, Any]]:
    with table.open_input_file(_name(version)) as file:
        lines = file.readall().decode().splitlines()
    for line in lines:
        if line:
            yield json.loads(line)


def _commit(table: "fs.FileSystem", version: int) -> Commit:
    info: dict[str, Any] = {}
    added, removed, transactions = [], [], {}
    for action in _actions(table, version):
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "add" in action:
            added.append(unquote(action["add"]["path"]))
        elif "remove" in action:
            removed.append(unquote(action["remove"]["path"]))
        elif "txn" in action:
            transactions[action["txn"]["appId"]] = int(action["txn"]["version"])
    return Commit(version, float(info.get("timestamp", 0)) / 1000, info, tuple(added), tuple(removed), transactions)


def _rows(table: "fs.FileSystem", version: int) -> Iterator[tuple[str, int | None]]:
    for action in _actions(table, version):
        if "add" in action:
            stats = json.loads(action["add"].get("stats") or "{}")
            yield unquote(action["add"]["path"]), stats.get("numRecords")


def _checkpoint(table: "fs.FileSystem", names: Iterable[str]) -> tuple[int, dict[str, int | None], dict[str, int]]:
    """Return version, files and transactions of the newest checkpoint; -1 and empty ones if there is none."""
    import pyarrow.parquet as pq

    found: dict[int, list[str]] = {}
    for name in names:
        if match := CHECKPOINT.fullmatch(name):
            found.setdefault(int(match[1]), []).append(name)
    if not found:
        return -1, {}, {}
    version = max(found)
    files: dict[str, int | None] = {}
    transactions: dict[str, int] = {}
    for name in found[version]:
        for row in pq.read_table(f"{LOG}/{name}", columns=["add", "txn"], filesystem=table).to_pylist():
            if row["add"] and row["add"]["path"]:
                stats = json.loads(row["add"].get("stats") or "{}")
                files[unquote(row["add"]["path"])] = stats.get("numRecords")
            if row["txn"] and row["txn"]["appId"]:
                transactions[row["txn"]["appId"]] = int(row["txn"]["version"])
    return version, files, transactions
