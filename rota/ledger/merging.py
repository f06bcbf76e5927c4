"""Files of a table put together into large ones, a bounded amount at a time: for its maintenance, beside what runs do.

Laws:
1. No row, offset, token or column changes; each commit says that no data did (`dataChange`).
2. Nobody waits for it and nothing fails for it: a commit beside it goes through, and a replay beside it plans again. Of one
   that died nobody sees a file, until the vacuum takes it.
3. One call rewrites at most `MOST` bytes and `MANY` files, and says what it left. A file of half the target or more is never
   rewritten, and none for fewer than `FEW` files, unless they fill one: so a byte is rewritten a few times in its life.
"""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rota.ledger.ledger import Ledger
from rota.ledger.port import Draft, Moved, Version
from rota.record import OFFSET, PARTITION

log = logging.getLogger(__name__)
TARGET = 128 << 20  # bytes of a file that is made
MOST, MANY = 1 << 30, 2_000  # bytes and files that one call rewrites
FEW = 8  # files that are left as they are
Said = Mapping[str, Any]  # of a file, as `Version.files` has it


@dataclass(frozen=True, slots=True)
class Merged:
    """What one call did: `before` files are `after` files now, and it wrote so many `bytes`. `left` files of `left_bytes`
    are for further calls."""

    before: int = 0
    after: int = 0
    bytes: int = 0
    left: int = 0
    left_bytes: int = 0


def merge(ledger: Ledger) -> Merged:
    """Puts files of the table together. Raises EnvironmentFailed, ForeignTable; what was done until then stays."""
    if (table := ledger.open()) is None:
        return Merged()
    before = after = size = many = 0
    left: list[list[Said]] = []
    for group in plan_groups(table.files()):
        size_of = sum(one["size_bytes"] for one in group)
        if size + size_of > MOST or many + len(group) > MANY:
            left.append(group)
            continue
        size, many = size + size_of, many + len(group)
        if _merge_group(ledger, table, group):
            before, after = before + len(group), after + 1
    of_left = [one for group in left for one in group]
    return Merged(before, after, size, len(of_left), sum(one["size_bytes"] for one in of_left))


def plan_groups(files: pa.Table) -> list[list[Said]]:
    """The files that become one, neighbours by partition and offset; those that make the most files fewer come first."""
    small = files.filter(pc.less(files["size_bytes"], TARGET // 2)).to_pylist()
    small.sort(key=lambda one: (one.get(f"min.{PARTITION}") or "", one.get(f"min.{OFFSET}") or 0, one["path"]))
    groups: list[list[Said]] = [[]]
    size = 0
    for one in small:
        if size + one["size_bytes"] > TARGET or len(groups[-1]) == MANY:
            groups.append([])
            size = 0
        groups[-1].append(one)
        size += one["size_bytes"]
    return sorted(filter(_is_worth, groups), key=len, reverse=True)


def _is_worth(group: list[Said]) -> bool:
    return len(group) >= FEW or (len(group) > 1 and sum(one["size_bytes"] for one in group) >= TARGET // 2)


def _merge_group(ledger: Ledger, table: Version, group: list[Said]) -> bool:
    """Whether they are one file now."""
    files, paths = ledger.files, [one["path"] for one in group]
    if not all(map(files.is_plain, paths)):
        log.warning("table=%s not_merged=its files hold times that other readers take for others", ledger.location)
        return False
    made = files.merge(paths, uuid.uuid4().hex)
    if made is None:
        return False
    known = [one["num_records"] for one in group]
    if None not in known and made.rows != sum(known):
        log.warning(
            "table=%s not_merged=%s has other rows than the log says of what is in it", ledger.location, made.path
        )
        files.discard((made,))
        return False
    try:
        table.append(
            Draft(table, adds=(made,), removes={one["path"]: one["size_bytes"] for one in group}, changes=False)
        )
    except Moved:
        files.discard((made,))  # it surely lost its race: nothing names it
        return False
    return True
