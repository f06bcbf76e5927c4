"""What a worker that decides alone reads of its group, and writes: its own target and its grabs.

Laws:
1. The target that a live worker wrote in its present incarnation counts. A target of an earlier incarnation or of a
   controller does not.
2. A worker writes only its own target, at the version that it read, and only while its live node exists.
3. A grab is created only if none exists: of any number of workers that ask for a partition, one holds the grab while it
   is live. Grabs of workers that are not live are ignored.
4. An unreadable record is never taken for an empty one. A worker with an unreadable record is live, takes nothing new,
   and names what it owns if that record is its target. It rewrites its own. An unreadable pipeline stops the
   observation (Undecodable).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rota.coordination.group_state import GroupState
from rota.coordination.records import Grab, Meta, Own, Partitions, Slot, Slots, WorkerOverrides, encode
from rota.coordination.snapshot import merge_worker
from rota.coordination.store import MAX_OPS, Check, Create, Delete, Op, Set
from rota.coordination.views import LiveView, Read, target_of
from rota.core import Partition
from rota.core.assignors.baselines.memoryless import number_key
from rota.core.protocols.observation import Member
from rota.errors import Conflict
from rota.ids import is_id, is_partition, partition_id, worker_of

AT_ONCE = MAX_OPS - 100  # grabs in one multi


@dataclass(frozen=True, slots=True)
class Others:
    """What a worker observes of its group. `version` is that of its own target's node, None without one; `mine` its record.

    `written`: the worker wrote that target in its present incarnation.
    """

    meta: Meta
    paused: bool
    members: Mapping[str, Member]
    partitions: tuple[Partition, ...]
    grabs: Mapping[str, str]
    version: int | None
    written: bool
    mine: Slots | None = None


def list_grabs(tree: GroupState) -> tuple[str, ...]:
    """The names of all grabs."""
    return tuple(n for n in tree.store.children(tree.paths.grabs) if is_partition(n) or is_id(n))


def read_grabs(tree: GroupState) -> dict[str, str]:
    """Maps each grab to the incarnation that made it, or to the owner of its session if it is unreadable. Raises
    Unavailable.
    """
    paths = {tree.paths.grab(name): name for name in list_grabs(tree)}
    found = {paths[path]: read.record.incarnation for path, read in tree.read_many(list(paths), Grab).items()}
    if torn := [path for path, name in paths.items() if name not in found]:
        live = {view.session: view.incarnation for view in tree.live()}
        nodes = zip(torn, tree.store.get_many(torn), strict=True)
        found |= {paths[path]: live[node.owner] for path, node in nodes if node is not None and node.owner in live}
    return found


def read_others(tree: GroupState, worker: str) -> Others:
    """The observation of `worker`. Raises NoGroup, Unavailable, Undecodable."""
    meta, head, overrides = tree.meta(), tree.head().record.epoch, tree.overrides()
    partitions = list_partitions(tree.pipelines(), overrides.pins)
    grabs = read_grabs(tree)
    live, people, slots = tree.newest(tree.live()), tree.worker_overrides(), tree.assigns()
    targets = _read_targets(tree, live, slots, head, me=worker)
    doubtful = tree.find_torn(tree.paths.workers) | _find_torn(tree, live) - {worker}
    members: dict[str, Member] = {}
    for name, view in live.items():
        merged = merge_worker(
            view, people[name].record if name in people else WorkerOverrides(), doubtful=name in doubtful
        )
        members[name] = Member(replace(merged, usage=None), targets[name])
    mine = slots.get(worker)
    node = mine.node if mine is not None else tree.store.get(tree.paths.assign(worker))
    here = {view.incarnation for view in live.values()}
    return Others(
        meta,
        overrides.paused,
        members,
        partitions,
        {name: worker_of(incarnation) for name, incarnation in grabs.items() if incarnation in here},
        node.version if node is not None else None,
        mine is not None and worker in live and mine.node.mzxid > live[worker].czxid,
        mine.record if mine is not None else None,
    )


def find_own_targets(tree: GroupState) -> dict[str, frozenset[str]]:
    """Maps each live worker to the target of its present incarnation. Raises Unavailable, Undecodable."""
    live, head, slots = tree.newest(tree.live()), tree.head().record.epoch, tree.assigns()
    return _read_targets(tree, live, slots, head)


def find_silent(tree: GroupState) -> frozenset[str]:
    """The live workers that have not written a target in their present incarnation."""
    live, slots = tree.newest(tree.live()), tree.assigns()
    return frozenset(w for w, v in live.items() if w not in slots or slots[w].node.mzxid < v.czxid) - _find_torn(
        tree, live
    )


def _find_torn(tree: GroupState, live: Collection[str]) -> frozenset[str]:
    """The live workers whose targets exist and cannot be read."""
    return frozenset(w for w in live if tree.paths.assign(w) in tree.unreadable)


def _read_targets(
    tree: GroupState, live: Mapping[str, LiveView], slots: Mapping[str, Read[Slots]], head: int, me: str = ""
) -> dict[str, frozenset[str]]:
    """Maps each worker to its target, if its present incarnation wrote it, or it is `me`; to what it owns if
    unreadable.
    """
    found = {w: _read_target(slots.get(w), view, head, any_writer=w == me) for w, view in live.items()}
    if torn := {live[w].incarnation: w for w in _find_torn(tree, live)}:
        for partition, own in tree.owned().items():
            if (name := torn.get(own.incarnation or "")) is not None:
                found[name] |= {partition}
    return found


def _read_target(slots: Read[Slots] | None, view: LiveView, head: int, *, any_writer: bool) -> frozenset[str]:
    """The target of a worker, if its present incarnation wrote it; with `any_writer`, regardless of the writer."""
    if slots is None or not (any_writer or slots.node.mzxid > view.czxid):
        return frozenset()
    target = target_of(slots.record, head, slots.node)
    return target.partitions if target is not None else frozenset()


def list_partitions(pipelines: Mapping[str, Read[Partitions]], pins: Mapping[str, str]) -> tuple[Partition, ...]:
    """The partitions of the group, in the order of the numbers in their ids."""
    found = [
        Partition(one, source=name, requires=read.record.requires, pin=pins.get(one))
        for name, read in pipelines.items()
        for one in (partition_id(name, key) for key in read.record.keys)
    ]
    return tuple(sorted(found, key=lambda one: number_key(one.id)))


def write_target(
    tree: GroupState, incarnation: str, partitions: Iterable[str], version: int | None, before: Slots | None = None
) -> None:
    """Writes the worker's own target, over the record `before`.

    Raises Conflict if the node is not at the version (None: it must not exist), or if the incarnation is not live;
    Unavailable, Unknown.
    """
    path = tree.paths.assign(worker_of(incarnation))
    data = encode(Slots(slots=(Slot(epoch=0, partitions=frozenset(partitions)),)).carry(before))
    write = Create(path, data) if version is None else Set(path, data, version)
    tree.store.multi([Check(tree.paths.live(incarnation)), write])


def found_own_records(tree: GroupState, partitions: Iterable[str]) -> None:
    """Creates a free own record for each partition that has none. Raises Unavailable, Unknown."""
    wanted, free = set(partitions), encode(Own())
    while missing := sorted(wanted.difference(tree.store.children(tree.paths.owns)))[:AT_ONCE]:
        try:
            tree.store.multi([Create(tree.paths.own(partition), free) for partition in missing])
        except Conflict as conflict:
            if conflict.cause != "exists":  # another process creates them too
                raise


def grab(tree: GroupState, incarnation: str, names: Iterable[str]) -> frozenset[str]:
    """Creates the grabs. Returns those that other workers hold.

    Raises Conflict if the incarnation is not live; Unavailable, Unknown.
    """
    data = encode(Grab(incarnation=incarnation))
    return _write_each(
        tree, incarnation, sorted(names), lambda path: Create(path, data, ephemeral=True), among=("exists",)
    )


def let_go(tree: GroupState, incarnation: str, names: Iterable[str]) -> None:
    """Deletes the grabs. Raises as `grab` does."""
    _write_each(tree, incarnation, sorted(names), Delete, among=("missing",))


def _write_each(
    tree: GroupState,
    incarnation: str,
    names: Sequence[str],
    make: Callable[[str], Op],
    among: Collection[str],
) -> frozenset[str]:
    """Writes the grab of each name, as many at a time as fit. Returns those that failed for one of the causes `among`."""
    failed: set[str] = set()
    for start in range(0, len(names), AT_ONCE):
        waiting = list(names[start : start + AT_ONCE])
        while waiting:
            try:
                tree.store.multi([Check(tree.paths.live(incarnation)), *(make(tree.paths.grab(n)) for n in waiting)])
            except Conflict as conflict:
                if conflict.index == 0 or conflict.cause not in among:
                    raise
                failed.add(waiting.pop(conflict.index - 1))
            else:
                waiting = []
    return frozenset(failed)
