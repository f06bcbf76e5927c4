"""How many partitions a group may have. Law: the last worker left can hold them all; what fits is taken in the order of
the keys, and the rest is told, never dropped in silence."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rota.coordination.id_set import MAX_IDS, pack
from rota.coordination.records import Partitions
from rota.coordination.store import MAX_DATA
from rota.errors import ConfigError
from rota.ids import checked_partition, partition_id

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState

MAX_PACKED = MAX_DATA // 2 - 1_000  # bytes of a group's packed ids: a worker's node holds two sets of them, and a line
NAMED = 5  # partitions without room that are told by name


def grow(tree: "GroupState", pipeline: str, keys: Iterable[str], requires: Mapping[str, str] | None) -> tuple[str, ...]:
    """Adds the keys to the pipeline's as far as there is room; see `GroupState.grow`."""
    fresh, lacking = _split(tree, pipeline, keys)

    def grown(now: Partitions | None) -> Partitions:
        now = now or Partitions()
        together = tuple(sorted({*now.keys, *fresh}, key=str.encode))
        return Partitions(keys=together, requires=now.requires if requires is None else dict(requires))

    tree.update(tree.paths.pipeline(pipeline), Partitions, grown)
    if lacking:
        raise ConfigError(lacking)
    return fresh


def lacking(tree: "GroupState", pipeline: str, keys: Iterable[str], without: str = "") -> str:
    """Which of the keys the group has no room for, in one line; empty where there is room for all. `without`: once it serves
    this pipeline no more. Raises ConfigError for an id that cannot be."""
    return _split(tree, pipeline, keys, without)[1]


def _split(tree: "GroupState", pipeline: str, keys: Iterable[str], without: str = "") -> tuple[tuple[str, ...], str]:
    """The new keys for which there is room, and the line about the others."""
    wanted = {key: checked_partition(partition_id(pipeline, key)) for key in keys}
    others = tree.partitions()
    mine = others.pop(pipeline, Partitions())
    others.pop(without, None)
    fresh = tuple(sorted(wanted.keys() - set(mine.keys), key=str.encode))
    if not fresh:
        return (), ""
    ids = [wanted[key] for key in fresh]
    there = {partition_id(pipeline, key) for key in mine.keys}
    for other, record in others.items():
        there |= {partition_id(other, key) for key in record.keys}
    fitting, why = _fitting(ids, there)
    if not why:
        return fresh, ""
    named = ids[fitting:][:NAMED]
    more = f" and {len(ids) - fitting - NAMED} more" if len(ids) - fitting > NAMED else ""
    return fresh[:fitting], (
        f"No room in group {tree.group!r} for {len(ids) - fitting} of the partitions of {pipeline!r}, nobody consumes them: "
        f"{', '.join(named)}{more}. It has {len(there) + fitting}, {why}. Use shorter keys, put {pipeline!r} into another "
        f"group, or take partitions out whose folders are gone: rota forget PARTITION..."
    )


def _fitting(ids: Sequence[str], there: set[str]) -> tuple[int, str]:
    """How many of the ids fit, in their order, beside those that are there; and why not one more."""
    fitting = max(0, min(len(ids), MAX_IDS - len(there)))
    why = f"and {MAX_IDS} are the most" if fitting < len(ids) else ""

    def size(count: int) -> int:
        return len(pack(there.union(ids[:count])))

    if fitting and size(fitting) > MAX_PACKED:
        fits, above = 0, fitting if size(1) <= MAX_PACKED else 1  # a full group is looked at again and again
        while above - fits > 1:
            middle = (fits + above) // 2
            fits, above = (middle, above) if size(middle) <= MAX_PACKED else (fits, middle)
        return fits, f"and with one more its ids take {size(above)} bytes, above {MAX_PACKED}"
    return fitting, why
