"""What people wish: of a worker, of the group, of a partition. Each is a record that the next look reads.

Law: a wish is set by compare-and-set and may be set again without harm; a wish about somebody unknown is refused with
the known ones.
"""

from collections.abc import Mapping
from typing import TypeVar

from rota.coordination.records import GroupWishes, Record, WorkerWishes
from rota.coordination.store import Check, Delete, Op
from rota.coordination.tree import Tree
from rota.errors import ConfigError, Conflict
from rota.settings import checked_id

R = TypeVar("R", bound=Record)


def cordon(tree: Tree, worker: str) -> WorkerWishes:
    """It keeps what it holds and gets nothing new."""
    return wish(tree, worker, cordoned=True)


def uncordon(tree: Tree, worker: str) -> WorkerWishes:
    """It takes part again: neither cordoned nor draining."""
    return wish(tree, worker, cordoned=False, draining=False)


def drain(tree: Tree, worker: str) -> WorkerWishes:
    """It hands over everything and gets nothing new."""
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
    """Sets what is given and leaves the rest. Raises ConfigError on an unknown worker or a bad value."""
    _known("worker", worker, workers(tree))
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


def pause(tree: Tree) -> GroupWishes:
    """Freezes voluntary moves; what must move still moves."""
    return _group(tree, paused=True)


def resume(tree: Tree) -> GroupWishes:
    """Lets voluntary moves happen again."""
    return _group(tree, paused=False)


def pin(tree: Tree, partition: str, worker: str | None) -> GroupWishes:
    """Ties a partition to a worker; None unties it. The worker need not be live yet."""
    known = {f"{p}-{key}" for p, record in tree.partitions().items() for key in record.keys}
    _known("partition", partition, known)
    if worker is not None:
        checked_id("worker", worker)

    def changed(now: GroupWishes | None) -> GroupWishes:
        before = now or GroupWishes()
        pins = {p: w for p, w in before.pins.items() if p != partition}
        return _made(GroupWishes, before.model_dump() | {"pins": pins | ({partition: worker} if worker else {})})

    return tree.update(tree.paths.wishes, GroupWishes, changed)


def _group(tree: Tree, **wanted: object) -> GroupWishes:
    def changed(now: GroupWishes | None) -> GroupWishes:
        return _made(GroupWishes, (now or GroupWishes()).model_dump() | wanted)

    return tree.update(tree.paths.wishes, GroupWishes, changed)


def workers(tree: Tree) -> frozenset[str]:
    """Every worker that the group has a record of: live, wished about, or with a target."""
    live = {view.worker for view in tree.live()}
    return frozenset(live | set(tree.store.children(tree.paths.workers)) | set(tree.store.children(tree.paths.assigns)))


def forget(tree: Tree, worker: str) -> None:
    """Removes what is kept about a worker that is gone for good. Raises ConfigError while it is live or has a target."""
    _known("worker", worker, workers(tree))
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
    try:
        tree.store.multi(ops)
    except Conflict as conflict:
        raise ConfigError(f"Worker {worker!r} was just changed by somebody else. Try again") from conflict


def _known(kind: str, name: str, known: frozenset[str] | set[str]) -> None:
    checked_id(kind, name)
    if name not in known:
        some = ", ".join(sorted(known)[:20]) or "none yet"
        raise ConfigError(f"Unknown {kind} {name!r}. Known: {some}")


def _made(model: type[R], fields: Mapping[str, object]) -> R:
    try:
        return model.model_validate(dict(fields))
    except ValueError as error:
        raise ConfigError(f"Bad wish: {' '.join(str(error).split())[:300]}. Give another value") from None
