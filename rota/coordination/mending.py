"""Records that cannot be read, and partitions that wait for a person: which there are, and how each goes on.

Laws: nothing here happens by itself, for a record of a newer rota is unreadable too. A person who asks for it loses what
nobody can read, and no more: an own record becomes free (`ownership.free_unreadable`), a checkpoint and a park are removed
at the version that was read; the table says how far the partition is.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rota.coordination.layout import is_id, is_incarnation
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
)
from rota.coordination.tree import Tree
from rota.errors import Conflict, NotOwner

COPY = "Restore it from a copy of ZooKeeper's data"
HARMLESS = "Only the history misses it; restore it, or delete the node"
SINGLE: dict[str, tuple[type[Record], str]] = {
    "meta": (Meta, COPY),
    "controller": (Controller, COPY),
    "head": (Head, COPY),
    "wishes": (GroupWishes, "Restore it, or: rota resume (it begins anew, without pins)"),
    "refused": (Refusals, HARMLESS),
}
FOLDERS: dict[str, tuple[type[Record], str]] = {
    "workers": (WorkerWishes, "Restore it, or: rota uncordon {name} (it begins anew, without wishes)"),
    "live": (Live, "Start the worker anew: it goes with its session"),
    "partitions": (Partitions, COPY),
    "load": (Loads, "The loads of {name} stand still; restore it, or delete the node"),
    "assign": (Slots, "Nothing to do: the next rebalance writes it anew"),
    "own": (Own, "Restore it, or: rota retry {name} (it is set free, its former owner is fenced)"),
    "checkpoints": (Checkpoint, "Restore it, or: rota retry {name} (the next run writes what the table says)"),
    "runs": (RunNode, "End the run on Dagster's page: it goes with its session"),
    "parked": (Parked, "rota retry {name}"),
    "epochs": (Epoch, HARMLESS),
}


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
    for name, (model, mend) in SINGLE.items():
        yield model, {f"{tree.paths.root}/{name}": mend}
    for folder, (model, mend) in FOLDERS.items():
        path = f"{tree.paths.root}/{folder}"
        names = (n for n in tree.store.children(path) if is_id(n) or is_incarnation(n))
        yield model, {f"{path}/{name}": mend.format(name=name) for name in names}


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


def _held(tree: Tree, partition: str) -> Iterable[str]:
    return tree.paths.own(partition), tree.paths.checkpoint(partition)
