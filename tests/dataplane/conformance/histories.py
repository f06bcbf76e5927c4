"""Random histories of a Delta log, written by rota and by delta-rs, and compared by both after each step."""

import json
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import DeltaError
from hypothesis import strategies as st

from rota.dataplane import footers
from rota.deltalog import packing, packs
from rota.deltalog.delta_log import DeltaLog, DeltaVersion
from rota.deltalog.port import Draft
from rota.errors import EnvironmentFailed
from rota.ledger.change import read_back
from rota.ledger.schema import FIRST

IDS = [*(f"rota/g/p:k{i}/{kind}" for i in range(2) for kind in ("offset", "token")), "tab\u2028le\n\"x'é"]
HOSTILE = {"by": '\u2028{"txn":{"appId":"no","version":1}}', "rota.n": "é"}
FOREVER = {"delta.logRetentionDuration": "interval 36500 days"}
SOON = 2**40  # in the future: no commit is too young to be packed
SMALL = 3  # commits of a pack


class Killed(BaseException):
    """Replaces a kill of the process."""


class History:
    """One log below `folder`, read by a process that keeps it open, by another one, and by delta-rs.

    `numbers` are the transactions that were set, unless they may expire; `words` are what the commits state about
    themselves, by version, unless another program removed them.
    """

    def __init__(self, location: str, folder: Path, interval: int = 7) -> None:
        self.folder = folder
        self.held, self.elsewhere = DeltaLog(location), DeltaLog(location)
        self.held.create(FIRST, {"delta.checkpointInterval": str(interval), **FOREVER})
        self.numbers: dict[str, int] = {}
        self.lasting = True
        self.words: dict[int, dict[str, Any]] = {}
        self.seen: list[tuple[DeltaVersion, object]] = []
        self.columns = iter("uvwxyz")

    # --- steps

    def set_by(self, log: DeltaLog, sets: dict[str, int]) -> None:
        table = open_log(log)
        table.append(Draft(table, sets, HOSTILE))
        self.numbers |= sets

    def set_by_delta_rs(self, sets: dict[str, int], updated: int | None = None) -> None:
        handle, said = self.held.load(), [Transaction(name, to, updated) for name, to in sets.items()]
        properties = CommitProperties(app_transactions=said, custom_metadata=HOSTILE)
        handle.create_write_transaction([], "append", handle.schema(), partition_by=[], commit_properties=properties)
        self.numbers |= sets
        self.lasting &= updated is None

    def add(self, log: DeltaLog) -> None:
        table = open_log(log)
        rows = pa.table({"_partition": ["p"], "_offset": pa.array([table.number], pa.int64())})
        table.append(Draft(table, adds=(footers.write_file(log.location, f"data/{uuid.uuid4()}/x=ü 1/f", rows),)))

    def replace(self, log: DeltaLog) -> None:
        table = open_log(log)
        gone = {one["path"]: one["size_bytes"] for one in table.files().to_pylist()[:1]}
        table.append(Draft(table, removes=gone, alone=True))

    def add_column(self, log: DeltaLog) -> None:
        if name := next(self.columns, ""):
            table = open_log(log)
            table.append(Draft(table, columns=FIRST.replace('"_partition"', f'"{name}"').replace("_offset", name * 2)))

    def checkpoint(self) -> None:
        self.held.load().create_checkpoint()

    def checkpoint_in_parts(self) -> None:
        """Write the newest checkpoint in two parts, as other programs do."""
        self.checkpoint()
        newest = max(self.list_log("*.checkpoint.parquet"), default=None)
        if newest is None:
            return  # this checkpoint is in parts already: delta-rs does not replace it
        rows = pq.read_table(newest)
        half = rows.num_rows // 2
        for number, part in enumerate((rows.slice(0, half), rows.slice(half)), 1):
            pq.write_table(part, newest.with_name(newest.name.replace("parquet", f"{number:010}.{2:010}.parquet")))
        newest.unlink()
        if (hint := self.folder / "_delta_log/_last_checkpoint").exists():
            said = {k: v for k, v in json.loads(hint.read_text()).items() if k in ("version", "size")}
            hint.write_text(json.dumps({**said, "parts": 2}))

    def lose_hint(self) -> None:
        (self.folder / "_delta_log/_last_checkpoint").unlink(missing_ok=True)

    def shorten(self) -> None:
        """Delete the commits before the checkpoint, as another program's cleanup does."""
        hint = self.folder / "_delta_log/_last_checkpoint"
        base = json.loads(hint.read_text())["version"] if hint.exists() else 0
        for commit in self.list_log("*.json"):
            if re.fullmatch(r"\d{20}\.json", commit.name) and int(commit.stem) < base:
                commit.unlink()
        self.words = {v: said for v, said in self.words.items() if v >= base}
        self.seen.clear()

    def let_expire(self) -> None:
        self.lasting = False
        limit = {"delta.setTransactionRetentionDuration": "interval 1 seconds"}
        self.held.load().alter.set_table_properties(limit, raise_if_not_exists=False)

    def optimize(self) -> None:
        self.held.load().optimize.compact()

    def restore(self) -> None:
        handle = self.held.load()
        if handle.version() > 1 and (self.folder / f"_delta_log/{handle.version() - 1:020}.json").exists():
            handle.restore(handle.version() - 1)

    def pack(self, deletions: int = 10**6) -> None:
        """Kill the packing after `deletions` deleted commits."""
        real, left = DeltaLog.delete_commit, [deletions]

        def delete(one: DeltaLog, version: int) -> None:
            if not left[0]:
                raise Killed
            left[0] -= 1
            real(one, version)

        with patch.object(packs, "PACKED", SMALL), patch.object(DeltaLog, "delete_commit", delete):
            with suppress(Killed, *([] if self.lasting else [EnvironmentFailed])):
                packing.pack(self.elsewhere, SOON)
        self.seen.clear()

    def list_log(self, pattern: str) -> list[Path]:
        return list((self.folder / "_delta_log").glob(pattern))

    # --- the checks

    def check(self) -> None:
        """Law: the open log, the log that is opened again, and delta-rs report the same."""
        with patch.object(packs, "PACKED", SMALL):
            table, theirs = open_log(self.held), self.held.load()
            for version in range(max(self.words, default=-1) + 1, table.number + 1):
                self.words[version] = dict(self.held.read_info(version))
            for ours in (table, open_log(DeltaLog(self.held.location))):
                assert ours.number == theirs.version()
                assert json.loads(ours.schema) == json.loads(theirs.schema().to_json())
                assert sorted(ours.files().to_pylist(), key=str) == sorted(
                    pa.table(theirs.get_add_actions(flatten=True)).to_pylist(), key=str
                )
                for name in (*IDS, "no"):
                    assert ours.transaction(name) == theirs.transaction_version(name), name
                    assert not self.lasting or ours.transaction(name) == self.numbers.get(name), name
                said, words = read_back(ours), [self.words[version] for version in sorted(self.words, reverse=True)]
                assert (said[: len(words)] if ours is table else said) == words, "a held log may know removed commits"
                history = theirs.history(4)
                assert said[: len(history)] == history
            self.seen = [*self.seen[-3:], (table, read_all(table))]
            assert [read_all(version) for version, _ in self.seen] == [said for _, said in self.seen]


def open_log(log: DeltaLog) -> DeltaVersion:
    table = log.open()
    assert table
    return table


def read_all(table: DeltaVersion) -> object:
    """Return everything that a version reports."""
    sets = [table.transaction(name) for name in IDS]
    return table.number, table.schema, sets, table.files().to_pylist(), read_back(table, 3)


SETS = st.dictionaries(st.sampled_from(IDS), st.integers(0, 2**63 - 1), min_size=1, max_size=3)
Step = Callable[[History], object]
OTHERS: list[Step] = [
    lambda one: one.add(one.held), lambda one: one.add(one.elsewhere), lambda one: one.replace(one.held),
    lambda one: one.add_column(one.held), lambda one: one.add_column(one.elsewhere),
    History.checkpoint, History.checkpoint, History.checkpoint_in_parts, History.lose_hint, History.shorten,
    History.let_expire, History.optimize, History.restore, History.pack, History.pack,
    lambda one: one.pack(2),
]  # fmt: skip
BY: list[Callable[[History, dict[str, int]], object]] = [
    lambda one, sets: one.set_by(one.held, sets),
    lambda one, sets: one.set_by(one.elsewhere, sets),
    lambda one, sets: one.set_by_delta_rs(sets),
    lambda one, sets: one.set_by_delta_rs(sets, 2**42),
]


def play(history: History, steps: list[Step | tuple[Any, dict[str, int]]]) -> None:
    """Do each step, and check after each."""
    for step in steps:
        if isinstance(step, tuple):
            step[0](history, step[1])
        else:
            with suppress(DeltaError):  # delta-rs cannot optimize or restore every version
                step(history)
        history.check()
