"""How many partitions a group may have. Law: the last worker left can hold them all."""

from collections.abc import Mapping

from rota.coordination.packed import MAX_IDS, pack
from rota.coordination.records import Partitions
from rota.coordination.store import MAX_DATA
from rota.errors import ConfigError

MAX_PACKED = MAX_DATA // 2 - 1_000  # bytes of a group's packed ids: a worker's node holds two sets of them, and a line


def check_room(group: str, pipeline: str, fresh: set[str], mine: set[str], others: Mapping[str, Partitions]) -> None:
    """Raises ConfigError where the group has no room for the pipeline's `fresh` ids beside `mine` and the `others`."""
    total = len(fresh) + len(mine) + sum(len(p.keys) for p in others.values())
    if total > MAX_IDS:
        raise ConfigError(
            f"Group {group!r} would have {total} partitions, above {MAX_IDS}. Put {pipeline!r} into another group"
        )
    for other, record in others.items():
        if shared := fresh.intersection(f"{other}-{key}" for key in record.keys):
            raise ConfigError(
                f"Partition {min(shared)!r} would be of pipelines {other!r} and {pipeline!r}. Rename one of the two"
            )
    everything = fresh.union(mine, *([f"{other}-{key}" for key in p.keys] for other, p in others.items()))
    if (size := len(pack(everything))) > MAX_PACKED:
        raise ConfigError(
            f"Group {group!r} would have {total} partitions whose ids take {size} bytes, above {MAX_PACKED}: the "
            f"last worker left could not hold them all. Use shorter keys, or put {pipeline!r} into another group"
        )
