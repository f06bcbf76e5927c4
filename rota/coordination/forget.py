"""Removes from a group: a worker that is gone for good, a pipeline that was removed, partitions that vanished.

Laws:
1. What is in use is not removed. The multi that removes a worker checks that it has no target. That the worker is not
   live, and that no run consumes a partition, is read before the write: a worker or run that appears in between creates
   the record again, or finishes its batch under its token.
2. Consumed progress is kept: an own record and a checkpoint outlive their partition, so that a partition that returns
   continues at its offset, under greater tokens. Its load, its pin and its park are removed.
"""

from collections.abc import Collection

from rota.coordination.group_state import GroupState
from rota.coordination.overrides import unpin, workers
from rota.coordination.parking import unpark
from rota.coordination.records import Partitions
from rota.coordination.store import Check, Delete, Op
from rota.errors import ConfigError, Conflict
from rota.ids import key_of, partition_id
from rota.settings import check_known


def forget_worker(tree: GroupState, worker: str) -> None:
    """Removes the records of a worker. Raises ConfigError while it is live or has a target."""
    check_known("worker", worker, workers(tree))
    if any(view.worker == worker for view in tree.live()):
        raise ConfigError(f"Worker {worker!r} is live. Stop it first, then forget it")
    head = tree.head()
    slots = tree.assigns().get(worker)
    ops: list[Op] = [Check(tree.paths.head, head.version)]
    if slots is not None:
        effective = slots.record.effective(head.record.epoch)
        if slots.record.newest > head.record.epoch or (effective is not None and effective.partitions):
            raise ConfigError(f"Worker {worker!r} still has a target. Wait for the next rebalance, then forget it")
        ops.append(Delete(tree.paths.assign(worker), slots.version))
    if (seen := tree.store.get(tree.paths.worker(worker))) is not None:
        ops.append(Delete(tree.paths.worker(worker), seen.version))
    _write(tree, ops, f"Worker {worker!r}")


def forget_pipeline(tree: GroupState, pipeline: str) -> tuple[str, ...]:
    """Removes the pipeline's partitions from the group, with their pins; the next epoch drops them.

    Returns their ids. Raises ConfigError while a run consumes one of them. A sensor that still has the pipeline's file
    adds them again at its next tick.
    """
    pipelines = tree.pipelines()
    check_known("pipeline", pipeline, set(pipelines))
    ids = tuple(partition_id(pipeline, key) for key in pipelines[pipeline].record.keys)
    _idle(tree, ids, pipeline)
    ops: list[Op] = [Delete(tree.paths.pipeline(pipeline), pipelines[pipeline].version)]
    _write(tree, ops, f"Pipeline {pipeline!r}")
    _clear(tree, ids)
    return ids


def forget_partitions(tree: GroupState, partitions: Collection[str]) -> None:
    """Removes single partitions from the group; the next epoch drops them.

    Raises ConfigError if one is unknown, or if a run consumes one. A sensor that still finds them in their source adds
    them again at its next tick.
    """
    ids = tree.ids()
    if unknown := sorted(set(partitions) - ids.keys()):
        check_known("partition", unknown[0], set(ids))
    _idle(tree, partitions, "it")
    for pipeline in sorted({ids[partition] for partition in partitions}):
        gone = {key_of(p) for p in partitions if ids[p] == pipeline}
        tree.update(tree.paths.pipeline(pipeline), Partitions, lambda now, gone=gone: _without(now, gone))  # type: ignore[misc]
    _clear(tree, partitions)


def _without(now: Partitions | None, gone: set[str]) -> Partitions:
    now = now or Partitions()
    return now.model_copy(update={"keys": tuple(key for key in now.keys if key not in gone)})


def _idle(tree: GroupState, partitions: Collection[str], what: str) -> None:
    """Raises ConfigError while a run consumes one of the partitions."""
    for run in tree.runs():
        if at_work := set(partitions).intersection(run.partitions):
            raise ConfigError(f"Run {run.run_id} consumes {min(at_work)}. Wait for its end, then forget {what}")


def _clear(tree: GroupState, partitions: Collection[str]) -> None:
    """Removes the parks and overrides of the partitions."""
    for partition in set(partitions).intersection(tree.store.children(tree.paths.parked)):
        unpark(tree, partition)
    unpin(tree, partitions)


def _write(tree: GroupState, ops: list[Op], what: str) -> None:
    try:
        tree.store.multi(ops)
    except Conflict as conflict:
        raise ConfigError(f"{what} was just changed by another process. Try again") from conflict
