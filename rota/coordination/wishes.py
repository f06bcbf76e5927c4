"""The wishes of people about a worker, a group or a partition. The next look reads them.

Law: a wish is written by compare-and-set and may be repeated without harm. A wish about an unknown worker or partition is
refused, and the known ones are named.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from rota.coordination.records import GroupWishes, Record, WorkerWishes
from rota.coordination.tree import Tree
from rota.errors import ConfigError, Undecodable
from rota.ids import checked_id
from rota.settings import known

R = TypeVar("R", bound=Record)


def cordon(tree: Tree, worker: str) -> WorkerWishes:
    """The worker keeps its partitions and gets no new ones. Raises as `wish` does."""
    return wish(tree, worker, cordoned=True)


def uncordon(tree: Tree, worker: str) -> WorkerWishes:
    """The worker is neither cordoned nor draining any more. Raises as `wish` does."""
    return wish(tree, worker, cordoned=False, draining=False)


def drain(tree: Tree, worker: str) -> WorkerWishes:
    """The worker hands over all partitions and gets no new ones. Raises as `wish` does."""
    return wish(tree, worker, draining=True)


def wish(
    tree: Tree,
    worker: str,
    *,
    cordoned: bool | None = None,
    draining: bool | None = None,
    capacity: float | None = None,
    labels: Mapping[str, str] | None = None,
    max_partitions: int | None = None,
) -> WorkerWishes:
    """Sets the given fields and leaves the others. Raises ConfigError on an unknown worker or a bad value, Undecodable."""
    known("worker", worker, workers(tree))
    given = {
        "cordoned": cordoned,
        "draining": draining,
        "capacity": capacity,
        "labels": labels,
        "max_partitions": max_partitions,
    }
    wanted = {k: v for k, v in given.items() if v is not None}

    def changed(now: WorkerWishes | None) -> WorkerWishes:
        return _made(WorkerWishes, (now or WorkerWishes()).model_dump() | wanted)

    return tree.update(tree.paths.worker(worker), WorkerWishes, changed)


def cap(tree: Tree, worker: str, announced: int | None) -> int | None:
    """How many partitions the worker may hold: what people wish, else what it announces; None is no bound. A wish that
    cannot be read is no bound here, because the controller gives such a worker no new partitions."""
    try:
        seen = tree.read(tree.paths.worker(worker), WorkerWishes)
    except Undecodable:
        return announced
    return announced if seen is None or seen.record.max_partitions is None else seen.record.max_partitions


def pause(tree: Tree) -> GroupWishes:
    """Stops voluntary moves. Unavoidable moves still happen."""
    return _group(tree, paused=True)


def resume(tree: Tree) -> GroupWishes:
    """Allows voluntary moves again."""
    return _group(tree, paused=False)


def pin(tree: Tree, partition: str, worker: str | None) -> GroupWishes:
    """Pins a partition to a worker, which need not be live yet; None removes the pin. Raises ConfigError."""
    known("partition", partition, set(tree.ids()))
    return _pin(tree, {partition}, {partition: checked_id("worker", worker)} if worker is not None else {})


def unpin(tree: Tree, partitions: Iterable[str]) -> GroupWishes:
    """Removes the pins of the partitions, whether the group knows them or not."""
    return _pin(tree, set(partitions), {})


def repin(tree: Tree, partitions: Mapping[str, str]) -> GroupWishes:
    """Moves the pin of each partition (old id -> new id) to the new id."""
    pins = tree.wishes().pins
    return _pin(tree, set(partitions), {new: pins[old] for old, new in partitions.items() if old in pins})


def _pin(tree: Tree, before: set[str], after: Mapping[str, str]) -> GroupWishes:
    def changed(now: GroupWishes | None) -> GroupWishes:
        wishes = now or GroupWishes()
        return _made(
            GroupWishes,
            wishes.model_dump() | {"pins": {p: w for p, w in wishes.pins.items() if p not in before} | dict(after)},
        )

    return tree.update(tree.paths.wishes, GroupWishes, changed)


def _group(tree: Tree, **wanted: object) -> GroupWishes:
    def changed(now: GroupWishes | None) -> GroupWishes:
        return _made(GroupWishes, (now or GroupWishes()).model_dump() | wanted)

    return tree.update(tree.paths.wishes, GroupWishes, changed)


def workers(tree: Tree) -> frozenset[str]:
    """Every worker that is live, has wishes or has a target."""
    live = {view.worker for view in tree.live()}
    return frozenset(live | set(tree.store.children(tree.paths.workers)) | set(tree.store.children(tree.paths.assigns)))


def _made(model: type[R], fields: Mapping[str, object]) -> R:
    try:
        return model.model_validate(dict(fields))
    except ValueError as error:
        raise ConfigError(f"Bad wish: {' '.join(str(error).split())[:300]}. Give another value") from None
