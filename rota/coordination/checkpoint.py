"""How far a partition got, for sensors and people; the table itself is the truth.

Laws:
1. A checkpoint is written in one multi that checks the own record's version and the run's node: a zombie cannot.
2. It never goes back: an offset or token below what is there is refused before anything is sent.
3. One stale partition does not hold up the others: it is dropped and named, the rest is sent again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rota.coordination.group_state import GroupState
from rota.coordination.ownership import Ownership
from rota.coordination.records import Checkpoint, encode
from rota.coordination.store import PATIENCE, Check, Create, Op, Set
from rota.coordination.views import Read
from rota.errors import Conflict

AT_ONCE = 100  # partitions in one multi


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
    tree.store.wait_active(PATIENCE)
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
