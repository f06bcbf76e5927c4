"""Who works on a partition: claim and release of its own record.

Laws:
1. An own record is only ever *set*, at the version read, in one multi that also checks the writer's live node: of any
   number of claimants one wins, and a worker whose session ended cannot claim at all.
2. The mzxid of the claim, over the group's token base, is the fencing token: it grows with every change of hands.
3. A lost reply is resolved here by reading back; the caller gets the ownership, or NotOwner, never a guess.
4. A record that cannot be read is nobody's to claim or release; where a person says so it is set free, at the version at
   which it was unreadable. Whoever held it is fenced like any former owner: by the version, and by the next token. So is
   whoever is set free for a rename.

Each guard can be removed for the tests that count the damage of its absence.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from rota.coordination.records import Own, decode, encode
from rota.coordination.store import Check, Node, Op, Set, settle, written
from rota.coordination.tree import Tree
from rota.errors import Conflict, NotOwner, Undecodable, Unknown


@dataclass(frozen=True, slots=True)
class Guards:
    """Which guards stand: `live` checks the writer's live node, `version` compares the own record's version, `assign`
    that of the target under which is claimed, `dropped` that of the target under which is released, `resolve` reads back
    after a lost reply."""

    live: bool = True
    version: bool = True
    assign: bool = True
    dropped: bool = True
    resolve: bool = True


GUARDED = Guards()


@dataclass(frozen=True, slots=True)
class Ownership:
    """The right to work on a partition: `version` is checked with each commit, `token` fences whoever came before."""

    partition: str
    incarnation: str
    version: int
    token: int


def claim(
    tree: Tree,
    incarnation: str,
    partition: str,
    own_version: int,
    assign_version: int | None = None,
    guards: Guards = GUARDED,
) -> Ownership:
    """Takes the partition if its own record is still at `own_version`, this incarnation is live, and (where
    `assign_version` is given) the worker's target is the one that was read. Raises NotOwner, Unavailable, Unknown.

    It does not ask who owned the record: the caller decided that it is free, gone, older, or to be forced. An owner that
    it is taken from is fenced by the version.
    """
    ops: list[Op] = []
    if guards.live:
        ops.append(Check(tree.paths.live(incarnation)))
    if guards.assign and assign_version is not None:
        ops.append(Check(tree.paths.assign(incarnation.rpartition("@")[0]), assign_version))
    token_base = tree.meta().token_base
    version, mzxid = _set(tree, ops, partition, Own(owner=incarnation), own_version, guards)
    return Ownership(partition, incarnation, version, token_base + mzxid)


def release(
    tree: Tree,
    incarnation: str,
    partition: str,
    own_version: int,
    guards: Guards = GUARDED,
    assign_version: int | None = None,
) -> None:
    """Sets the partition free if its own record is still at `own_version` and (where `assign_version` is given) the
    worker's target is the one that dropped it: a run may have begun under a newer one. Raises NotOwner, Unavailable,
    Unknown."""
    ops: list[Op] = [Check(tree.paths.live(incarnation))] if guards.live else []
    if guards.dropped and assign_version is not None:
        ops.append(Check(tree.paths.assign(incarnation.rpartition("@")[0]), assign_version))
    _set(tree, ops, partition, Own(), own_version, guards)


def free_unreadable(tree: Tree, partition: str, guards: Guards = GUARDED) -> bool:
    """Sets the partition free if its own record cannot be read; whether that was so. Raises NotOwner where somebody was
    faster, Unavailable, Unknown."""
    node = tree.store.get(tree.paths.own(partition))
    if node is None or _read(tree.paths.own(partition), node) is not None:
        return False
    _set(tree, (), partition, Own(), node.version, guards)
    return True


def free(tree: Tree, partition: str) -> None:
    """Sets the partition free, whoever owns it: whoever claims it from now on has a greater token. One that cannot be read
    is left to `free_unreadable`. Raises Unavailable, Unknown."""
    path = tree.paths.own(partition)
    while (node := tree.store.get(path)) is not None and (own := _read(path, node)) is not None and own.owner:
        with suppress(NotOwner):  # it changed hands: once more
            _set(tree, (), partition, Own(), node.version, GUARDED)


def _set(
    tree: Tree, checks: Sequence[Op], partition: str, record: Own, version: int, guards: Guards
) -> tuple[int, int]:
    """The version and mzxid of the own record after it was set."""
    path = tree.paths.own(partition)
    ops = [*checks, Set(path, encode(record), version if guards.version else -1)]
    for attempt in (1, 2, 3):
        try:
            node = written(tree.store.multi(ops)[-1])
        except Conflict as conflict:
            if attempt > 1 and (resolved := _resolved(tree, path, record, version)) is not None:
                return resolved
            raise NotOwner(f"{partition} was not taken or set free: {conflict}", partition=partition) from conflict
        except Unknown:
            if not guards.resolve:
                raise NotOwner(f"{partition}: the reply was lost. Look again", partition=partition) from None
            settle(tree.store)
            if (resolved := _resolved(tree, path, record, version)) is not None:
                return resolved
        else:
            return node.version, node.mzxid
    raise Unknown(f"The reply of a write to {path} was lost three times. Look again when ZooKeeper answers")


def _resolved(tree: Tree, path: str, record: Own, version: int) -> tuple[int, int] | None:
    """What a lost reply would have said; None: the write is not there and may be sent again.

    The record at `version + 1` with this very owner is ours: only this incarnation writes its name, and only from
    `version` does it get there. A record that moved on otherwise was lost to somebody, which the next Conflict says."""
    node = tree.store.get(path)
    if node is not None and node.version == version + 1 and _read(path, node) == record:
        return node.version, node.mzxid
    return None


def _read(path: str, node: Node) -> Own | None:
    """The own record; None where it cannot be read."""
    try:
        return decode(path, Own, node.data)
    except Undecodable:
        return None
