"""`rota skip`: moves a partition past offsets that cannot be consumed. The table's log records each skip.

Law: a skip moves the offset and nothing else, by the same compare-and-set as a batch, and never beyond the end of the
partition: all skipped data have assigned offsets. One skip passes a whole hole in the source. The log records the user
and the offsets. Without `--to`, an offset is skipped only if the partition is parked for it. A refused skip writes
nothing, and so assigns no offsets. A skip closes the source at its end.
"""

import uuid
from contextlib import suppress
from dataclasses import replace

from rota.coordination.group_state import GroupState
from rota.coordination.parking import unpark
from rota.dataplane.ports import Consumed, Holds, Observation, Ports, Query, Source
from rota.errors import ConfigError, CoordinationError, Fenced
from rota.ids import quote
from rota.ledger.values import Batch
from rota.run.restored import explain_lost


def skip(tree: GroupState, ports: Ports, partition: str, to: int | None = None, user: str = "") -> tuple[int, int]:
    """Skip offsets and unpark the partition. Return the skipped range [start, end).

    With `to` None, skip the offset that the partition is parked for, or the hole there. Raises ConfigError if no run ever
    read the partition, it is not parked at its offset, `to` is not beyond the offset or is beyond the end, or the index
    lost consumed offsets; Fenced and OffsetGap if a run or a new owner was faster; ForeignTable.
    """
    try:
        return _skip(tree, ports, partition, to, user)
    finally:
        if isinstance(ports.source, Holds):
            ports.source.close()


def _skip(tree: GroupState, ports: Ports, partition: str, to: int | None, user: str) -> tuple[int, int]:
    source, main = ports.source, ports.main
    position = main.read_positions((partition,))[partition]
    if position.offset is None or position.token is None:
        raise ConfigError(f"No run ever looked at {partition}: there is nothing to skip. See `rota status`")
    query = Query(consumed=Consumed({partition: position}, main))
    seen = source.observe((partition,), query)
    if reason := explain_lost(seen, main, {partition: position}).get(partition):
        raise ConfigError(f"{partition}: {reason}")
    latest, behind = _read_end(seen, partition), 0
    if position.offset < latest:
        behind = _find_behind_hole(source, partition, position.offset)
    end = to or max(position.offset + 1, behind)
    _check_end(partition, position.offset, max(latest, behind), end)
    if to is None and (why := _explain_not_parked(tree, partition, position.offset)):
        named = _name_offset(source, seen, partition, position.offset)
        raise ConfigError(
            f"{partition} is at {position.offset}{named} and {why}: nothing is skipped. To "
            f"skip it all the same: rota skip {quote(partition)} --to {position.offset + 1}"
        )
    assigned = source.observe((partition,), replace(query, assign=True))
    _check_end(partition, position.offset, max(behind, _read_end(assigned, partition)), end)
    claimed = main.claim({partition: position.token}, {partition: position.offset})
    if claimed.newer:
        raise Fenced(
            f"{partition} was taken over just now: {main.location} has seen token {claimed.newer[partition]}. Nothing was "
            f"skipped; see `rota why {quote(partition)}`",
            partitions=(partition,),
        )
    ranges = {partition: (position.offset, end)}
    main.commit(claimed, Batch(uuid.uuid4().hex, user or "skip", "", "", 0, ranges, rows={partition: 0}, op="skip"))
    with suppress(CoordinationError):  # the skip is committed: a second one would skip one more offset
        unpark(tree, partition)
    return ranges[partition]


def _read_end(seen: Observation, partition: str) -> int:
    """Return the end of the partition. Raises ConfigError if the partition cannot be read."""
    if partition not in seen.ends:
        raise ConfigError(f"{partition} cannot be skipped: {seen.unreadable.get(partition) or 'try again'}")
    return seen.ends[partition]


def _find_behind_hole(source: Source, partition: str, offset: int) -> int:
    """Return the first offset after a hole of the source that begins at `offset`; 0 if there is no hole or no data after
    it. Raises ConfigError if the source was replaced."""
    error = source.find_broken({partition: (offset, offset + 1)}).get(partition)
    if error and error.facts.get("other"):
        raise ConfigError(f"{partition} cannot be skipped: {error}")
    return int(str(error.facts.get("behind", 0))) if error else 0


def _check_end(partition: str, offset: int, latest: int, end: int) -> None:
    """Raise ConfigError unless offset < end <= latest."""
    if offset >= latest:
        raise ConfigError(f"{partition} is at {offset}, its end: there is nothing to skip. See `rota status`")
    if end > latest:
        raise ConfigError(
            f"{partition} ends at {latest}; what lands next would be skipped unseen. Give --to {latest} at most"
        )
    if end <= offset:
        raise ConfigError(f"{partition} is at {offset} already; {end} is not beyond it. Give a greater --to")


def _name_offset(source: Source, seen: Observation, partition: str, offset: int) -> str:
    """Return the name of the data at the offset, such as a file; empty if the offset is not assigned."""
    return f" ({source.locate(partition, offset)})" if offset < seen.assigned[partition] else ""


def _explain_not_parked(tree: GroupState, partition: str, offset: int) -> str:
    """Return why the partition is not parked for this offset; empty if it is."""
    parked = tree.parked().get(partition)
    if parked is None:
        return "is not parked"
    return "" if parked.record.offset == offset else f"is parked for offset {parked.record.offset}"
