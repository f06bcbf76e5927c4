"""Merges small files of a table, a bounded amount at a time: a little by runs, more by the nightly maintenance.

Laws:
1. No row, offset, token or column changes. Each commit states that no data changed (`dataChange`).
2. No commit waits for a merge or fails because of a merge. A merge that conflicts with a replay gives up, and the next call
   plans again. No reader sees the file of a killed merge; the vacuum deletes that file.
3. One call rewrites what its bound allows, at most `MANY` files, and reports what it left. A file of half the target or more
   is never rewritten. Fewer than `FEW` files are merged only if the result has half the target or more. So each byte is
   rewritten only a few times. A file with rows that another program deleted in place stays: a merge would bring the rows
   back. While a foreign commit is not adopted, no file is rewritten: otherwise the commit could not be undone.
4. The run that commits every `EVERY`th version merges. This takes about 5 % of the time that Spark took to write the rows.
"""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rota.deltalog.port import Draft, Version
from rota.ledger.change import commit_change
from rota.ledger.ledger import Ledger
from rota.ledger.port import Merges
from rota.record import OFFSET, PARTITION

log = logging.getLogger(__name__)
EVERY = 17  # versions; odd: if claims and commits alternate, all versions of commits are even, or all are odd
FEW, MANY = 8, 20_000  # fewest files worth a merge; most files that one call rewrites
COLUMNS = ("path", "size_bytes", "num_records", f"min.{PARTITION}", f"min.{OFFSET}")  # that `plan_groups` reads
FileEntry = Mapping[str, Any]  # a row of `Version.files`


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of a call: it makes files of up to `target` bytes, from up to `most` bytes plus `each` bytes per file."""

    target: int
    most: int
    each: int = 0


A_NIGHT, A_RUN = Bound(128 << 20, 1 << 30), Bound(32 << 20, 64 << 20, 16 << 10)


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a call: it merged `before` files into `after` files. The files that it tried to merge had `bytes`
    bytes. Later calls can merge `left` files of `left_bytes`."""

    before: int = 0
    after: int = 0
    bytes: int = 0
    left: int = 0
    left_bytes: int = 0


def is_due(version: int) -> bool:
    """Return whether the run that committed this version merges. Of several runs on a table, only one merges."""
    return version % EVERY == 0


def merge_beside_run(ledger: Ledger) -> Merged:
    """Merge within the bound of a run. Logs each error instead of raising it."""
    try:
        return merge(ledger, A_RUN)
    except Exception as error:  # any error: the run has committed its batch, and must not fail
        log.warning("table=%s not_merged=%s", ledger.location, " ".join(str(error).split())[:400])
        return Merged()


def merge(ledger: Ledger, bound: Bound) -> Merged:
    """Merge files of the table. Raises EnvironmentFailed, ForeignTable; groups that were merged before stay merged."""
    if (table := ledger.open()) is None:
        return Merged()
    ledger.check_untouched(table)
    files = table.files()
    if hurt := table.find_vectored(files["path"].to_pylist()):
        files = files.filter(pc.invert(pc.is_in(files["path"], pa.array(sorted(hurt)))))
    taken, left = choose_groups(plan_groups(files, bound.target), bound)
    done = [group for group in taken if merge_group(table, ledger.files, group)]
    return Merged(sum(map(len, done)), len(done), sum(map(_size, taken)), sum(map(len, left)), sum(map(_size, left)))


def plan_groups(files: pa.Table, target: int) -> list[list[FileEntry]]:
    """Return groups of files to merge, neighbours by partition and offset. The groups with the most files come first."""
    known = files.select([name for name in COLUMNS if name in files.column_names])
    small = known.filter(pc.less(known["size_bytes"], target // 2)).to_pylist()
    small.sort(key=lambda one: (one.get(f"min.{PARTITION}") or "", one.get(f"min.{OFFSET}") or 0, one["path"]))
    groups: list[list[FileEntry]] = [[]]
    size = 0
    for one in small:
        if size + one["size_bytes"] > target or len(groups[-1]) == MANY:
            groups.append([])
            size = 0
        groups[-1].append(one)
        size += one["size_bytes"]

    def is_worth(group: list[FileEntry]) -> bool:
        return len(group) >= FEW or (len(group) > 1 and _size(group) >= target // 2)

    return sorted(filter(is_worth, groups), key=len, reverse=True)


def choose_groups(groups: list[list[FileEntry]], bound: Bound) -> tuple[list[list[FileEntry]], list[list[FileEntry]]]:
    """Return the groups that one call merges, and those that it leaves to later calls."""
    taken: list[list[FileEntry]] = []
    left: list[list[FileEntry]] = []
    size = many = 0
    for group in groups:
        then, so_many = size + _size(group), many + len(group)
        if then > bound.most + bound.each * so_many or so_many > MANY:
            left.append(group)
        else:
            taken.append(group)
            size, many = then, so_many
    return taken, left


def _size(group: list[FileEntry]) -> int:
    return sum(one["size_bytes"] for one in group)


def merge_group(table: Version, files: Merges, group: list[FileEntry]) -> bool:
    """Merge the files of the group into one, and return whether that file was committed. Raises EnvironmentFailed."""
    location = table.log.location
    made = files.merge([one["path"] for one in group], uuid.uuid4().hex)
    if made is None:
        log.warning("table=%s not_merged=its files do not go together as all readers take them", location)
        return False
    known = [one["num_records"] for one in group]
    if None not in known and made.rows != sum(known):
        log.warning("table=%s not_merged=%s has other rows than the log states for its parts", location, made.path)
        files.discard((made,))
        return False

    def make(tries: int) -> Draft[bool] | bool:
        if tries:  # the draft lost a race: no commit names the file, and the next call plans again
            files.discard((made,))
            return False
        gone = {one["path"]: one["size_bytes"] for one in group}
        return Draft(table, adds=(made,), removes=gone, changes=False, result=True)

    return commit_change(table.log, make)
