"""Go on behind offsets that cannot be consumed: `rota skip`, recorded in the table's log like every other step.

Law: a skip moves the offset and nothing else, by the same compare-and-set as a batch, and never beyond what is there:
what it skips has its offset in the index. The log says who skipped what. One offset alone is skipped only where the
partition is parked for it.
"""

import uuid
from contextlib import suppress

from rota.coordination.parking import unpark
from rota.coordination.tree import Tree
from rota.dataplane.landing import Landing
from rota.dataplane.ledger import Tables
from rota.dataplane.table import Batch
from rota.errors import ConfigError, CoordinationError
from rota.pipeline import Pipeline


def skip(tree: Tree, pipeline: Pipeline, partition: str, to: int | None = None, who: str = "") -> tuple[int, int]:
    """The offsets [start, end) that were skipped; `to` None: the one that it is parked for. The partition is unparked.

    Raises ConfigError for a partition that no run ever looked at, one that is not parked where it stands, or a `to` behind
    it or beyond its end; Fenced and OffsetGap if a run or a new owner was faster, ForeignTable.
    """
    source = Landing.of(pipeline)
    main = Tables.of(pipeline, tree.group, tree.meta().id).main
    standing = main.standing((partition,))[partition]
    if standing.offset is None or standing.token is None:
        raise ConfigError(f"No run ever looked at {partition}: there is nothing to skip. See `rota status`")
    end, latest = standing.offset + 1 if to is None else to, source.fix((partition,))[partition]
    if standing.offset >= latest:
        raise ConfigError(
            f"{partition} stands at {standing.offset}, its end: there is nothing to skip. See `rota status`"
        )
    if to is None and (why := _not_parked(tree, partition, standing.offset)):
        raise ConfigError(
            f"{partition} stands at {standing.offset} ({source.place(partition, standing.offset)}) and {why}: nothing is "
            f"skipped. To skip it all the same: rota skip {partition} --to {standing.offset + 1}"
        )
    if end > latest:
        raise ConfigError(
            f"{partition} ends at {latest}; what lands next would be skipped unseen. Give --to {latest} at most"
        )
    if end <= standing.offset:
        raise ConfigError(
            f"{partition} stands at {standing.offset} already; {end} is not beyond it. Give a greater --to"
        )
    claimed = main.claim({partition: standing.token}, {partition: standing.offset})
    ranges = {partition: (standing.offset, end)}
    main.commit(claimed, Batch(uuid.uuid4().hex, who or "skip", "", "", 0, ranges, rows={partition: 0}, op="skip"))
    with suppress(CoordinationError):  # the skip is in the table: whoever repeated it would skip one more
        unpark(tree, partition)
    return ranges[partition]


def _not_parked(tree: Tree, partition: str, offset: int) -> str:
    """Why the offset is not what the partition is parked for; empty where it is."""
    parked = tree.parked().get(partition)
    if parked is None:
        return "is not parked"
    return "" if parked.record.offset == offset else f"is parked for offset {parked.record.offset}"
