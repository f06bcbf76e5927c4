"""Overrides by operators for a worker, a group or a partition. The next observation reads them.

Law: an override is written by compare-and-set and is safe to repeat. An override for an unknown worker or partition is
refused, and the known ones are named.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from rota.coordination.group_state import GroupState
from rota.coordination.records import GroupOverrides, Record, WorkerOverrides
from rota.errors import ConfigError, Undecodable
from rota.ids import checked_id
from rota.settings import check_known

R = TypeVar("R", bound=Record)


def cordon(tree: GroupState, worker: str) -> WorkerOverrides:
    """The worker keeps its partitions and gets no new ones. Raises as `override` does."""
    return override(tree, worker, cordoned=True)


def uncordon(tree: GroupState, worker: str) -> WorkerOverrides:
    """The worker is neither cordoned nor draining any more. Raises as `override` does."""
    return override(tree, worker, cordoned=False, draining=False)


def drain(tree: GroupState, worker: str) -> WorkerOverrides:
    """The worker hands over all partitions and gets no new ones. Raises as `override` does."""
    return override(tree, worker, draining=True)


def override(tree: GroupState, worker: str, **wanted: object) -> WorkerOverrides:
    """Sets these fields and leaves the others. Raises ConfigError on an unknown worker or a bad value, Undecodable."""
    check_known("worker", worker, workers(tree))

    def changed(now: WorkerOverrides | None) -> WorkerOverrides:
        return _made(WorkerOverrides, (now or WorkerOverrides()).model_dump() | wanted)

    return tree.update(tree.paths.worker(worker), WorkerOverrides, changed)


def cap(tree: GroupState, worker: str, announced: int | None) -> int | None:
    """How many partitions the worker may hold: the override, else what the worker announces. None is no bound.

    An unreadable override is no bound here, because the controller gives such a worker no new partitions.
    """
    try:
        seen = tree.read(tree.paths.worker(worker), WorkerOverrides)
    except Undecodable:
        return announced
    return announced if seen is None or seen.record.max_partitions is None else seen.record.max_partitions


def pause(tree: GroupState) -> GroupOverrides:
    """Stops voluntary moves. Unavoidable moves still happen."""
    return _group(tree, paused=True)


def resume(tree: GroupState) -> GroupOverrides:
    """Allows voluntary moves again."""
    return _group(tree, paused=False)


def pin(tree: GroupState, partition: str, worker: str | None) -> GroupOverrides:
    """Pins a partition to a worker, which need not be live yet; None removes the pin. Raises ConfigError."""
    check_known("partition", partition, set(tree.ids()))
    return _pin(tree, {partition}, {partition: checked_id("worker", worker)} if worker is not None else {})


def unpin(tree: GroupState, partitions: Iterable[str]) -> GroupOverrides:
    """Removes the pins of the partitions, whether the group knows them or not."""
    return _pin(tree, set(partitions), {})


def repin(tree: GroupState, partitions: Mapping[str, str]) -> GroupOverrides:
    """Moves the pin of each partition (old id -> new id) to the new id."""
    pins = tree.overrides().pins
    return _pin(tree, set(partitions), {new: pins[old] for old, new in partitions.items() if old in pins})


def _pin(tree: GroupState, before: set[str], after: Mapping[str, str]) -> GroupOverrides:
    def changed(now: GroupOverrides | None) -> GroupOverrides:
        overrides = now or GroupOverrides()
        return _made(
            GroupOverrides,
            overrides.model_dump()
            | {"pins": {p: w for p, w in overrides.pins.items() if p not in before} | dict(after)},
        )

    return tree.update(tree.paths.overrides, GroupOverrides, changed)


def _group(tree: GroupState, **wanted: object) -> GroupOverrides:
    def changed(now: GroupOverrides | None) -> GroupOverrides:
        return _made(GroupOverrides, (now or GroupOverrides()).model_dump() | wanted)

    return tree.update(tree.paths.overrides, GroupOverrides, changed)


def workers(tree: GroupState) -> frozenset[str]:
    """Every worker that is live, has overrides or has a target."""
    live = {view.worker for view in tree.live()}
    return frozenset(live | set(tree.store.children(tree.paths.workers)) | set(tree.store.children(tree.paths.assigns)))


def _made(model: type[R], fields: Mapping[str, object]) -> R:
    try:
        return model.model_validate(dict(fields))
    except ValueError as error:
        raise ConfigError(f"Bad override: {' '.join(str(error).split())[:300]}. Give another value") from None
