"""Moves a group's records of a pipeline (keys, loads, pins, checkpoints) to another name.

Laws: each step is safe to repeat. The owner under the new name claims each partition anew: its own record is freed
here, after the table was taken from the old name, so that every token that may write is above every token in the table.
The next epoch places the partitions. A parked partition is retried and reported under its new name.
"""

from collections.abc import Mapping
from contextlib import suppress

from rota.coordination.group_state import GroupState
from rota.coordination.limits import explain_excess
from rota.coordination.membership import remove_node
from rota.coordination.overrides import repin
from rota.coordination.ownership import free
from rota.coordination.parking import unpark
from rota.coordination.records import Checkpoint, Partitions, encode
from rota.coordination.repair import check_readable
from rota.coordination.store import Create, Delete, Op, Set
from rota.errors import ConfigError, Conflict, CoordinationError


def check(tree: GroupState, old: str, new: str, partitions: Mapping[str, str]) -> None:
    """Raises ConfigError before anything is written.

    The causes: a run consumes one of the partitions (old id -> new id), a new id is invalid or belongs to another
    pipeline, or a record cannot be read.
    """
    check_readable(tree, "rename")
    for run in tree.runs():
        if at_work := partitions.keys() & set(run.partitions):
            raise ConfigError(
                f"Run {run.run_id} consumes {min(at_work)}. Nothing was renamed. Wait for its end, then type it again"
            )
    if why := explain_excess(tree, new, (p[len(new) + 1 :] for p in partitions.values()), without=old):
        raise ConfigError(why)


def rename_pipeline(
    tree: GroupState, old: str, new: str, partitions: Mapping[str, str], checkpoints: Mapping[str, Checkpoint]
) -> None:
    """The group serves `new` instead of `old`. `checkpoints` are the table's offsets, by new id."""
    for partition, own in tree.owned(partitions.values()).items():
        if own.incarnation:
            free(tree, partition)
    stored = tree.checkpoints([*partitions, *partitions.values()])
    for was, partition in partitions.items():
        if (now := checkpoints.get(partition)) is not None:
            last = [stored[p].record for p in (was, partition) if p in stored and stored[p].record.offset == now.offset]
            # with the run and the rows of the old name
            record = last[0].model_copy(update={"table": now.table}) if last else now
            tree.put(tree.paths.checkpoint(partition), record)
    move_partitions(tree, old, new)
    repin(tree, partitions)
    for was in partitions.keys() & set(tree.store.children(tree.paths.checkpoints)):
        remove_node(tree, tree.paths.checkpoint(was))
    for parked in {*partitions, *partitions.values()} & set(tree.store.children(tree.paths.parked)):
        with suppress(CoordinationError):
            unpark(tree, parked)


def move_partitions(tree: GroupState, old: str, new: str) -> None:
    """Moves the keys of `old` to `new`, in one multi."""
    pipelines = tree.pipelines()
    if old not in pipelines:
        return
    was, now = pipelines[old], pipelines.get(new)
    record = now.record if now else Partitions(requires=was.record.requires).carry(was.record)
    keys = tuple(sorted({*was.record.keys, *record.keys}, key=str.encode))
    ops: list[Op] = [Delete(tree.paths.pipeline(old), was.version)]
    path, data = tree.paths.pipeline(new), encode(record.model_copy(update={"keys": keys}))
    ops.append(Set(path, data, now.version) if now else Create(path, data))
    try:
        tree.store.multi(ops)
    except Conflict as conflict:
        raise ConfigError(f"The partitions of {old!r} or {new!r} were just changed. Type it again") from conflict
