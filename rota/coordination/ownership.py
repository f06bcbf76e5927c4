"""Claims and releases of partitions' own records, as many as fit into one multi.

Laws:
1. An own record is only ever *set*, at the version that was read, in one multi that also checks the writer's live node.
   Of any number of claimants one wins, and a worker whose session ended cannot claim at all.
2. The mzxid of the claim, plus the group's token base, is the fencing token. It grows with every change of owner of its
   partition. Partitions that were claimed in one multi share it.
3. A lost reply is resolved here by reading back. The caller gets the ownership, or the reason why not, never a guess.
4. A partition that another process wrote first does not hold up the others of its multi: it is named, and the rest is
   sent again. If the writer itself has changed (live node, target), none is written.
5. An unreadable record cannot be claimed or released (`repair.py`). Freeing a partition for a rename or a repair fences
   its former owner as a claim does: by the version, and by the next token.
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
    """The right to work on a partition: each commit checks `version`, and `token` fences every former owner."""

    partition: str
    incarnation: str
    version: int
    token: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """The result of claiming several partitions: the ownership of each that was taken, and the reasons for the others."""

    taken: Mapping[str, Ownership]
    refused: Mapping[str, str]


def claim_all(
    tree: GroupState,
    incarnation: str,
    versions: Mapping[str, int],
    assign_version: int | None = None,
) -> Claimed:
    """Claims each of at most `AT_ONCE` partitions whose own record is still at its version.

    This incarnation must be live and, if `assign_version` is given, the worker's target must be the one that was read.
    The caller has decided that each record is free, gone, older, or to be taken by force. The version fences a former
    owner. Raises Unavailable, Unknown.
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
    """Frees each of at most `AT_ONCE` partitions whose own record is still at its version.

    If `assign_version` is given, the worker's target must be the one that dropped it: a run may have begun under a
    newer one. Returns the reasons for those that were not freed. Raises Unavailable, Unknown.
    """
    return _set(tree, _checks(tree, incarnation, assign_version), Own(), versions)[1]


def free(tree: GroupState, partition: str) -> None:
    """Frees the partition, whatever its owner. Every later claim has a greater token.

    An unreadable record is left alone. Raises Unavailable, Unknown.
    """
    path = tree.paths.own(partition)
    while (node := tree.store.get(path)) is not None and (own := _read(path, node)) is not None and own.incarnation:
        _set(tree, (), Own(), {partition: node.version})  # refused where it changed hands: once more


def _checks(tree: GroupState, incarnation: str, assign_version: int | None) -> list[Op]:
    """The conditions on the writer: its live node, and its target if `assign_version` is given."""
    checks: list[Op] = [Check(tree.paths.live(incarnation))]
    if assign_version is not None:
        checks.append(Check(tree.paths.assign(worker_of(incarnation)), assign_version))
    return checks


def _set(
    tree: GroupState, checks: Sequence[Op], record: Own, versions: Mapping[str, int]
) -> tuple[dict[str, Node], dict[str, str]]:
    """Sets the own records that are at their versions, in one multi. Returns the written nodes, and the reasons for the
    others.

    After a multi that was refused or lost, all records are read back, and those that changed meanwhile are left out.
    """
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
    """Why partitions of a refused multi cannot be written: all, if a condition on the writer failed.

    Otherwise the one that refused it, and those that are no longer at their versions: a version never returns.
    """
    if conflict.index < checks:
        return dict.fromkeys(versions, str(conflict))
    culprit = tuple(versions)[conflict.index - checks]
    moved = [p for p, node in there.items() if node is None or node.version != versions[p]]
    return dict.fromkeys(moved, CAUSES["version"]) | {culprit: CAUSES.get(conflict.cause, conflict.cause)}


def _resolve(there: Mapping[str, Node | None], versions: Mapping[str, int], record: Own) -> dict[str, Node]:
    """What a lost reply would have contained. A write that is not found may be sent again.

    The record at `version + 1` with this very owner is ours: only this incarnation writes its name, and only from
    `version` does it get there. If the record changed otherwise, another process won, and the next Conflict reports it.
    """
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
