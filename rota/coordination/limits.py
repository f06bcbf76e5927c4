"""How many partitions a group may have.

Law: one worker alone can hold all partitions of the group. Keys are added in their order as long as they fit, and the others
are reported.
"""

from collections.abc import Iterable, Sequence

from rota.coordination.group_reader import GroupReader
from rota.coordination.id_set import MAX_IDS, pack
from rota.coordination.records import Partitions
from rota.coordination.store import MAX_DATA
from rota.ids import checked_partition, partition_id

MAX_PACKED = MAX_DATA // 2 - 1_000  # bytes of a group's packed ids: a worker's node holds two sets of them, and a line
NAMED = 5  # partitions that do not fit and are named


def explain_excess(tree: GroupReader, pipeline: str, keys: Iterable[str], without: str = "") -> str:
    """Which of the keys do not fit into the group, in one line; empty if all fit. Partitions of `without` do not count.
    Raises ConfigError on a bad id."""
    return split_fitting(tree, pipeline, keys, without)[1]


def split_fitting(
    tree: GroupReader, pipeline: str, keys: Iterable[str], without: str = ""
) -> tuple[tuple[str, ...], str]:
    """The new keys that fit, and the line about the others."""
    others = tree.partitions()
    mine = others.pop(pipeline, Partitions())
    others.pop(without, None)
    known = set(mine.keys)
    wanted = {key: checked_partition(partition_id(pipeline, key)) for key in keys if key not in known}
    fresh = tuple(sorted(wanted, key=str.encode))
    if not fresh:
        return (), ""
    ids = [wanted[key] for key in fresh]
    there = {partition_id(pipeline, key) for key in mine.keys}
    for other, record in others.items():
        there |= {partition_id(other, key) for key in record.keys}
    fitting, why = _count_fitting(ids, there)
    if not why:
        return fresh, ""
    named = ids[fitting:][:NAMED]
    more = f" and {len(ids) - fitting - NAMED} more" if len(ids) - fitting > NAMED else ""
    return fresh[:fitting], (
        f"No room in group {tree.group!r} for {len(ids) - fitting} of the partitions of {pipeline!r}, no run consumes them: "
        f"{', '.join(named)}{more}. It has {len(there) + fitting}, {why}. Use shorter keys, put {pipeline!r} into another "
        f"group, or take partitions out whose folders are gone: rota forget PARTITION..."
    )


def _count_fitting(ids: Sequence[str], there: set[str]) -> tuple[int, str]:
    """How many of the ids fit, in their order, beside those that are there, and why not one more."""
    fitting = max(0, min(len(ids), MAX_IDS - len(there)))
    why = f"and {MAX_IDS} are the most" if fitting < len(ids) else ""

    def size(count: int) -> int:
        return len(pack(there.union(ids[:count])))

    if fitting and size(fitting) > MAX_PACKED:
        # a bisection, as a full group is checked often
        fits, above = 0, fitting if size(1) <= MAX_PACKED else 1
        while above - fits > 1:
            middle = (fits + above) // 2
            fits, above = (middle, above) if size(middle) <= MAX_PACKED else (fits, middle)
        return fits, f"and with one more its ids take {size(above)} bytes, above {MAX_PACKED}"
    return fitting, why
