"""Who works on a partition: claim and release of its own record, as many as fit at a time.

Laws:
1. An own record is only ever *set*, at the version read, in one multi that also checks the writer's live node: of any
   number of claimants one wins, and a worker whose session ended cannot claim at all.
2. The mzxid of the claim, over the group's token base, is the fencing token: it grows with every change of hands of its
   partition. Partitions that were claimed in one multi share theirs.
3. A lost reply is resolved here by reading back; the caller gets the ownership, or why not, never a guess.
4. One partition that somebody else wrote first does not hold up the others of its multi: it is named, the rest is sent
   again. Where the writer itself is no longer who it was (live node, target), none is written.
5. A record that cannot be read is nobody's to claim or release (`repair.py`). A partition that is set free for a rename
   or a repair fences its former owner as a claim does: by the version, and by the next token.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rota.coordination.group_state import GroupState
from rota.coordination.records import Own, decode, encode
from rota.coordination.store import CAUSES, Check, Node, Op, Set, settle, written
from rota.errors import Conflict, Undecodable, Unknown
from rota.ids import worker_of

AT_ONCE = 400  # partitions in one multi: with the longest ids they take less than 200 KB of a request's 900
LOST_REPLIES = 3  # of one multi whose reply is lost each time


@dataclass(frozen=True, slots=True)
class Ownership:
    """The right to work on a partition: `version` is checked with each commit, `token` fences whoever came before."""

    partition: str
    incarnation: str
    version: int
    token: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim of several came to: the ownership of each that was taken, and why the others were not."""

    taken: Mapping[str, Ownership]
    refused: Mapping[str, str]


def claim_all(
    tree: GroupState,
    incarnation: str,
    versions: Mapping[str, int],
    assign_version: int | None = None,
) -> Claimed:
    """Takes each of at most `AT_ONCE` partitions whose own record is still at its version, if this incarnation is live
    and (where `assign_version` is given) the worker's target is the one that was read. Raises Unavailable, Unknown.

    It does not ask who owned a record: the caller decided that it is free, gone, older, or to be forced. An owner that
    it is taken from is fenced by the version.
    """
    checks = _checks(tree, incarnation, assign_version)
    token_base = tree.meta().token_base
    nodes, refused = _set(tree, checks, Own(incarnation=incarnation), versions)
    taken = {p: Ownership(p, incarnation, node.version, token_base + node.mzxid) for p, node in nodes.items()}
    return Claimed(taken, refused)


def release_all(
    tree: GroupState,
    incarnation: str,
    versions: Mapping[str, int],
    assign_version: int | None = None,
) -> Mapping[str, str]:
    """Sets each of at most `AT_ONCE` partitions free if its own record is still at its version and (where
    `assign_version` is given) the worker's target is the one that dropped it: a run may have begun under a newer one.
    Why those that were not set free were not. Raises Unavailable, Unknown."""
    return _set(tree, _checks(tree, incarnation, assign_version), Own(), versions)[1]


def free(tree: GroupState, partition: str) -> None:
    """Sets the partition free, whoever owns it: whoever claims it from now on has a greater token. One that cannot be read
    is left alone. Raises Unavailable, Unknown."""
    path = tree.paths.own(partition)
    while (node := tree.store.get(path)) is not None and (own := _read(path, node)) is not None and own.incarnation:
        _set(tree, (), Own(), {partition: node.version})  # refused where it changed hands: once more


def _checks(tree: GroupState, incarnation: str, assign_version: int | None) -> list[Op]:
    """What must hold of the writer: its live node, and its target where `assign_version` is given."""
    checks: list[Op] = [Check(tree.paths.live(incarnation))]
    if assign_version is not None:
        checks.append(Check(tree.paths.assign(worker_of(incarnation)), assign_version))
    return checks


def _set(
    tree: GroupState, checks: Sequence[Op], record: Own, versions: Mapping[str, int]
) -> tuple[dict[str, Node], dict[str, str]]:
    """Sets the own records that are at their versions, in one multi; each as it was written, and why the others were
    not. After a multi that was refused or lost all of it is read back: what moved on meanwhile is left out."""
    done: dict[str, Node] = {}
    refused: dict[str, str] = {}
    waiting, data, lost = dict(versions), encode(record), 0
    while waiting:
        sets = [Set(tree.paths.own(p), data, v) for p, v in waiting.items()]
        try:
            nodes = tree.store.multi([*checks, *sets])[len(checks) :]
        except Conflict as conflict:
            there = _read_nodes(tree, waiting)
            if lost:
                done |= _resolve(there, waiting, record)
            refused |= {p: w for p, w in _stale(conflict, len(checks), there, waiting).items() if p not in done}
        except Unknown:
            settle(tree.store)
            done |= _resolve(_read_nodes(tree, waiting), waiting, record)
            if (lost := lost + 1) == LOST_REPLIES and waiting.keys() - done.keys():
                raise
        else:
            done |= {p: written(node) for p, node in zip(waiting, nodes, strict=True)}
        waiting = {p: v for p, v in waiting.items() if p not in done and p not in refused}
    return done, refused


def _read_nodes(tree: GroupState, partitions: Iterable[str]) -> dict[str, Node | None]:
    """The own records as they are now."""
    names = tuple(partitions)
    return dict(zip(names, tree.store.get_many([tree.paths.own(p) for p in names]), strict=True))


def _stale(
    conflict: Conflict, checks: int, there: Mapping[str, Node | None], versions: Mapping[str, int]
) -> dict[str, str]:
    """Why which of the partitions of a refused multi cannot be written: all, where one of its checks did not hold; else
    the one that refused it, and those that are not at their versions any more: no version comes back."""
    if conflict.index < checks:
        return dict.fromkeys(versions, str(conflict))
    culprit = tuple(versions)[conflict.index - checks]
    moved = [p for p, node in there.items() if node is None or node.version != versions[p]]
    return dict.fromkeys(moved, CAUSES["version"]) | {culprit: CAUSES.get(conflict.cause, conflict.cause)}


def _resolve(there: Mapping[str, Node | None], versions: Mapping[str, int], record: Own) -> dict[str, Node]:
    """What a lost reply would have said; a write that is not there may be sent again.

    The record at `version + 1` with this very owner is ours: only this incarnation writes its name, and only from
    `version` does it get there. A record that moved on otherwise was lost to somebody, which the next Conflict says."""
    return {
        p: node
        for p, node in there.items()
        if node is not None and node.version == versions[p] + 1 and _read(p, node) == record
    }


def _read(path: str, node: Node) -> Own | None:
    """The own record; None where it cannot be read."""
    try:
        return decode(path, Own, node.data)
    except Undecodable:
        return None
