"""Records that cannot be read, and partitions that wait for a person: which there are, and how each goes on.

Laws: nothing here happens by itself, for a record of a newer rota is unreadable too. A person who asks for it loses what
nobody can read, and no more: an own record becomes free (`ownership.free_unreadable`), a checkpoint and a park are removed
at the version that was read; the table says how far the partition is. A record of the group begins anew from what else is
there, at the version that was read: the head at the epoch of the newest audit, which was made with it; the controller at
a term that nobody had; a pipeline with the partitions that have a target or an owner.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rota.coordination.ownership import free_unreadable
from rota.coordination.parking import unpark
from rota.coordination.records import (
    Checkpoint,
    Controller,
    Epoch,
    GroupWishes,
    Head,
    Live,
    Loads,
    Meta,
    Own,
    Parked,
    Partitions,
    Record,
    Refusals,
    RunNode,
    Slots,
    WorkerWishes,
    encode,
)
from rota.coordination.store import Delete, Node, Op, Set
from rota.coordination.tree import Tree
from rota.errors import Conflict, NotOwner
from rota.ids import is_id, is_incarnation, is_partition, is_run, key_of, pipeline_of

HARMLESS = "Only the history misses it; restore it, or: rota retry{group} (the history goes on without)"
SINGLE: dict[str, tuple[type[Record], str]] = {
    "meta": (
        Meta,
        "Restore it, or end all runs, then: rota adopt{group} (the group gets a new id, its tables go over to it)",
    ),
    "controller": (
        Controller,
        "Restore it, or: rota retry{group} (it begins anew, without what the assignor remembers)",
    ),
    "head": (
        Head,
        "Restore it, or: rota retry{group} (it begins anew at the epoch of the newest entry of the history)",
    ),
    "wishes": (GroupWishes, "Restore it, or: rota resume{group} (it begins anew, without pins)"),
    "refused": (Refusals, HARMLESS),
}
FOLDERS: dict[str, tuple[type[Record], str]] = {
    "workers": (WorkerWishes, "Restore it, or: rota uncordon {name}{group} (it begins anew, without wishes)"),
    "live": (Live, "Start the worker anew: it goes with its session"),
    "partitions": (Partitions, "Restore it, or: rota retry{group} (it begins anew with what has a target or an owner)"),
    "load": (Loads, "The loads of {name} stand still; restore it, or: rota retry{group} (they are measured anew)"),
    "assign": (Slots, "Nothing to do: the next rebalance writes it anew"),
    "own": (Own, "Restore it, or: rota retry {name}{group} (it is set free, its former owner is fenced)"),
    "checkpoints": (Checkpoint, "Restore it, or: rota retry {name}{group} (the next run writes what the table says)"),
    "runs": (RunNode, "End the run on Dagster's page: it goes with its session"),
    "parked": (Parked, "rota retry {name}{group}"),
    "epochs": (Epoch, HARMLESS),
}

OURS = (is_id, is_partition, is_incarnation, is_run)  # other names in a folder are foreign


@dataclass(frozen=True, slots=True)
class Unreadable:
    """One record that cannot be read: why, and what mends it."""

    path: str
    why: str
    mend: str


def unreadable(tree: Tree) -> tuple[Unreadable, ...]:
    """Every record of the group that cannot be read now, by path."""
    fresh = Tree(tree.store, tree.group)  # it names what it reads, and nothing that is gone since
    mends: dict[str, str] = {}
    for model, group in _all(fresh):
        fresh.read_many(tuple(group), model)
        mends |= group
    return tuple(
        Unreadable(path, why.partition(". It is left alone")[0], mends[path])
        for path, why in sorted(fresh.quarantined.items())
    )


def _all(tree: Tree) -> Iterator[tuple[type[Record], dict[str, str]]]:
    """Each model with the paths of its records, and what mends each."""
    group = "" if tree.group == "default" else f" --group {tree.group}"  # a command without it means another group
    for name, (model, mend) in SINGLE.items():
        yield model, {f"{tree.paths.root}/{name}": mend.format(group=group)}
    for folder, (model, mend) in FOLDERS.items():
        path = f"{tree.paths.root}/{folder}"
        names = (
            n
            for n in tree.store.children(path)
            if any(known(n) for known in (is_id, is_partition, is_incarnation, is_run))
        )
        yield model, {f"{path}/{name}": mend.format(name=name, group=group) for name in names}


def stuck(tree: Tree, partitions: Sequence[str]) -> dict[str, str]:
    """Those of the partitions that wait for a person or for their time, and why: parked, or held by what cannot be read."""
    waiting, why = set(tree.store.children(tree.paths.parked)), tree.parked()
    tree.owned(partitions)
    tree.checkpoints(partitions)
    found: dict[str, str] = {}
    for p in partitions:
        if p in waiting:
            found[p] = f"it was parked: {why[p].record.reason if p in why else 'nobody can read why'}"
        elif torn := [path for path in _held(tree, p) if path in tree.quarantined]:
            found[p] = f"nobody could read {torn[0]}"
    return found


def go_on(tree: Tree, partition: str) -> None:
    """Nothing keeps the partition from its next run any more."""
    with suppress(NotOwner):  # somebody was faster: the record can be read
        free_unreadable(tree, partition)
    path = tree.paths.checkpoint(partition)
    node = tree.store.get(path)
    if node is not None and tree.read_many([path], Checkpoint) == {}:
        with suppress(Conflict):  # somebody wrote one that can be read
            tree.store.delete(path, node.version)
    unpark(tree, partition)


def begin_anew(tree: Tree) -> tuple[str, ...]:
    """The paths of the group's own records that could not be read and that nothing keeps from going on any more: head,
    controller, partitions, loads and history. Those of a partition, a worker or a run have verbs of their own, and meta
    has `adopt`. Raises Conflict where somebody was faster."""
    torn = [one.path for one in unreadable(tree)]
    made: list[str] = []
    for path in sorted(torn, key=lambda path: path != tree.paths.head):  # the head first: it says what targets are
        node = tree.store.get(path)
        if node is not None and (op := _anew(tree, path, node)) is not None:
            tree.store.multi([op])
            tree.quarantined.pop(path, None)
            made.append(path)
    return tuple(made)


def _anew(tree: Tree, path: str, node: Node) -> Op | None:
    """What lets the group go on without what nobody can read; None: it is not to be had here."""
    paths, folder = tree.paths, path.rpartition("/")[0]
    if path == paths.head:
        epochs = [int(name) for name in tree.store.children(paths.epochs) if name.isdigit()]
        return Set(path, encode(Head(epoch=max(epochs, default=0))), node.version)
    if path == paths.controller:  # each term was a write of its own
        return Set(path, encode(Controller(term=node.version + 1)), node.version)
    if path == paths.refused:
        return Set(path, encode(Refusals()), node.version)
    if folder == paths.partitions:
        return Set(path, encode(Partitions(keys=_keys(tree, path.rpartition("/")[2]))), node.version)
    return Delete(path, node.version) if folder in (paths.loads, paths.epochs) else None


def _keys(tree: Tree, pipeline: str) -> tuple[str, ...]:
    """The keys of the pipeline that have a target or an owner."""
    own = tree.read_many([tree.paths.own(p) for p in tree.store.children(tree.paths.owns) if is_partition(p)], Own)
    ids = {path.rpartition("/")[2] for path, read in own.items() if read.record.owner}
    ids |= {p for target in tree.targets()[1].values() for p in target.partitions}
    return tuple(sorted((key_of(p) for p in ids if pipeline_of(p) == pipeline), key=str.encode))


def _held(tree: Tree, partition: str) -> Iterable[str]:
    return tree.paths.own(partition), tree.paths.checkpoint(partition)
