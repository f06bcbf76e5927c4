"""How far a partition got, for sensors and people; the table itself is the truth.

Laws:
1. A checkpoint is written in one multi that checks the own record's version and the run's node: a zombie cannot.
2. It never goes back: an offset or token below what is there is refused before anything is sent.
3. One stale partition does not hold up the others: it is dropped and named, the rest is sent again.
4. It carries the partition's load: rows a second, exponentially smoothed. Each batch is in it once, and what is old decays.
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
LEAST = 60.0  # seconds of measuring: what a few batches say is mostly when they came


@dataclass(frozen=True, slots=True)
class Entry:
    """One checkpoint to be written under an ownership, over the one that was read (None: there is none yet)."""

    ownership: Ownership
    checkpoint: Checkpoint
    seen: Read[Checkpoint] | None = None

    @property
    def backwards(self) -> bool:
        """Whether it would go back."""
        before = self.seen.record if self.seen else None
        after = self.checkpoint
        return before is not None and (after.offset < before.offset or after.token < before.token)


def write_checkpoints(tree: GroupState, run: str, entries: Sequence[Entry]) -> dict[str, Conflict | None]:
    """Writes each checkpoint; partition -> None, or the Conflict that refused it. `run` is the path of the run's node.

    Raises Conflict if the run's own node is gone, Unavailable, Unknown (the next run heals it from the table)."""
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
    """The operations, and for each the partition that it is for (None: the run)."""
    ops: list[Op] = [Check(run)]
    owners: list[str | None] = [None]
    for entry in entries:
        partition, path = entry.ownership.partition, tree.paths.checkpoint(entry.ownership.partition)
        data = encode(entry.checkpoint)
        ops.append(Check(tree.paths.own(partition), entry.ownership.version))
        ops.append(Set(path, data, entry.seen.version) if entry.seen else Create(path, data))
        owners += [partition, partition]
    return ops, owners


def read_load(seen: Read[Checkpoint], now: float) -> float | None:
    """The load that a checkpoint tells, in rows a second at `now` in server seconds; None: nobody measured it yet."""
    load, since = _fold(seen)
    written = seen.node.mtime / 1000
    if load is None or seen.record.load_at is None or written - since < LEAST:
        return None
    return load * _fade(now - written - max(0.0, written - seen.record.load_at))  # silent for longer than usual


def carry_load(seen: Read[Checkpoint] | None, checkpoint: Checkpoint) -> Checkpoint:
    """The next checkpoint with the load of all batches before its own: whoever reads it adds that one, at the time at which
    ZooKeeper wrote it. So no clock but the server's is in it. A batch that is told once more counts once."""
    if seen is None:
        return checkpoint
    again = seen.record.offset == checkpoint.offset and checkpoint.rows > 0
    load, since = (seen.record.load, seen.record.since) if again else _fold(seen)
    at = seen.record.load_at if again else seen.node.mtime / 1000
    return checkpoint.model_copy(update={"load": load, "since": since, "load_at": at})


def _fold(seen: Read[Checkpoint]) -> tuple[float | None, float]:
    """The load with the last batch, and since when it is measured. Rows of the first batch may have waited for long: they
    say nothing.

    A batch's rows came evenly since the batch before. The mean of that rate, exponentially smoothed, is divided by the
    weight of the time since then, as Adam corrects its moments (Kingma and Ba, 2015): a steady load is told as it is,
    however seldom there is a batch.
    """
    said, now = seen.record, seen.node.mtime / 1000
    if said.since is None or said.load_at is None:
        return None, now
    span = now - said.load_at
    kept, weight = _fade(span), 1 - _fade(now - said.since)
    if span <= 0 or weight <= 0:  # the clock went back: what was measured stays so, as long as it was
        return said.load, min(said.since, now - max(0.0, said.load_at - said.since))
    before = (said.load or 0.0) * (1 - _fade(said.load_at - said.since)) * kept
    return (before + said.rows / span * (1 - kept)) / weight, said.since


def _fade(seconds: float) -> float:
    return math.exp(-max(0.0, seconds) / SMOOTHING)
