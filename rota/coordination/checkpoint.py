"""Checkpoints: the progress of each partition, for sensors and operators. The table itself is authoritative.

Laws:
1. A checkpoint is written in one multi that checks the own record's version and the run's node, so a zombie cannot
   write.
2. It never goes back: an offset or token below the stored one is refused before anything is sent.
3. One stale partition does not hold up the others: it is dropped and named, and the rest is sent again.
4. It carries the partition's load in rows a second, exponentially smoothed. Each batch counts once, and old loads
   decay.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rota.coordination.group_state import GroupState
from rota.coordination.ownership import Ownership
from rota.coordination.records import Checkpoint, encode
from rota.coordination.store import RECONNECTING, Check, Create, Op, Set
from rota.coordination.views import Read
from rota.errors import Conflict

AT_ONCE = 100  # partitions in one multi
SMOOTHING = 120.0  # seconds in which an old load loses its weight
LEAST = 60.0  # seconds of measuring: a few batches mostly show when they arrived


@dataclass(frozen=True, slots=True)
class Entry:
    """One checkpoint to write under an ownership, over the one that was read (None: there is none yet)."""

    ownership: Ownership
    checkpoint: Checkpoint
    seen: Read[Checkpoint] | None = None

    @property
    def backwards(self) -> bool:
        """Whether the checkpoint would go back."""
        before = self.seen.record if self.seen else None
        after = self.checkpoint
        return before is not None and (after.offset < before.offset or after.token < before.token)


def write_checkpoints(tree: GroupState, run: str, entries: Sequence[Entry]) -> dict[str, Conflict | None]:
    """Writes each checkpoint. Maps each partition to None, or to the Conflict that refused it. `run` is the run's node.

    Raises Conflict if the run's own node is gone; Unavailable; Unknown (the next run restores it from the table).
    """
    done: dict[str, Conflict | None] = {e.ownership.partition: _backwards(tree, e) for e in entries if e.backwards}
    entries = [e for e in entries if not e.backwards]
    tree.store.wait_active(RECONNECTING)
    for start in range(0, len(entries), AT_ONCE):
        waiting = list(entries[start : start + AT_ONCE])
        while waiting:
            ops, owners = _ops(tree, run, waiting)
            try:
                tree.store.multi(ops)
            except Conflict as conflict:
                culprit = owners[conflict.index]
                if culprit is None:
                    raise
                done[culprit] = conflict
                waiting = [e for e in waiting if e.ownership.partition != culprit]
            else:
                done |= dict.fromkeys((e.ownership.partition for e in waiting), None)
                break
    return done


def _backwards(tree: GroupState, entry: Entry) -> Conflict:
    path = tree.paths.checkpoint(entry.ownership.partition)
    line = f"{path} is further on than offset {entry.checkpoint.offset}. Nothing was written; re-open the table"
    return Conflict(line, path=path, index=0, cause="version")


def _ops(tree: GroupState, run: str, entries: Sequence[Entry]) -> tuple[list[Op], list[str | None]]:
    """The operations, and for each the partition that it belongs to (None: the run)."""
    ops: list[Op] = [Check(run)]
    owners: list[str | None] = [None]
    for entry in entries:
        partition, path = entry.ownership.partition, tree.paths.checkpoint(entry.ownership.partition)
        data = encode(entry.checkpoint.carry(entry.seen.record if entry.seen else None))
        ops.append(Check(tree.paths.own(partition), entry.ownership.version))
        ops.append(Set(path, data, entry.seen.version) if entry.seen else Create(path, data))
        owners += [partition, partition]
    return ops, owners


def read_load(seen: Read[Checkpoint], now: float) -> float | None:
    """The load in a checkpoint, in rows a second at `now` in server seconds; None: not measured yet."""
    load, since = _fold(seen)
    written = seen.node.mtime / 1000
    if load is None or seen.record.load_at is None or written - since < LEAST:
        return None
    return load * _fade(now - written - max(0.0, written - seen.record.load_at))  # silent for longer than usual


def carry_load(seen: Read[Checkpoint] | None, checkpoint: Checkpoint) -> Checkpoint:
    """The next checkpoint's load: that of all batches before its own.

    The reader adds the last batch, at the time at which ZooKeeper wrote the checkpoint, so only the server's clock is
    used. A batch that is reported again counts once.
    """
    if seen is None:
        return checkpoint
    again = seen.record.offset == checkpoint.offset and checkpoint.rows > 0
    load, since = (seen.record.load, seen.record.since) if again else _fold(seen)
    at = seen.record.load_at if again else seen.node.mtime / 1000
    return checkpoint.model_copy(update={"load": load, "since": since, "load_at": at})


def _fold(seen: Read[Checkpoint]) -> tuple[float | None, float]:
    """The load including the last batch, and the start of the measurement.

    Rows of the first batch may have waited for long, so they do not count. The rows of a batch are assumed to arrive
    evenly since the batch before. The exponentially smoothed mean of that rate is divided by the weight of the elapsed
    time, as Adam corrects its moments (Kingma and Ba, 2015). So a steady load is reported correctly, however rare
    batches are.
    """
    said, now = seen.record, seen.node.mtime / 1000
    if said.since is None or said.load_at is None:
        return None, now
    span = now - said.load_at
    kept, weight = _fade(span), 1 - _fade(now - said.since)
    if span <= 0 or weight <= 0:  # the clock went back: keep the measurement as it was
        return said.load, min(said.since, now - max(0.0, said.load_at - said.since))
    before = (said.load or 0.0) * (1 - _fade(said.load_at - said.since)) * kept
    return (before + said.rows / span * (1 - kept)) / weight, said.since


def _fade(seconds: float) -> float:
    return math.exp(-max(0.0, seconds) / SMOOTHING)
