"""Record the ownership that workers reached without a controller, once it has settled, in the form of a plan.

Laws: nothing is decided here and no worker's target is written. The record holds what the targets of live workers name,
once each partition is named at most once, each worker owns what it names, and no worker asks for a partition that it does
not own (under `race` a grab outlives the claim). A move starts at the last recorded worker of the partition. Its reason
is that this worker is gone, drains or may not hold the partition; otherwise the reason names the taker, the giver and the
counts. Its time is the time of the claim in the own record, seconds before the move is recorded.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np

from rota.coordination.alone import find_own_targets, find_silent, read_grabs
from rota.coordination.group_state import GroupState
from rota.coordination.records import MAX_MOVES, Own
from rota.coordination.snapshot import Basis, GroupSnapshot, read_snapshot
from rota.core import Plan, Snapshot
from rota.core.constraints import matches
from rota.core.planner import describe
from rota.core.values import Codes, Worker
from rota.errors import counted
from rota.ids import is_partition, partition_id, worker_of

KEY = "observed"  # key in the controller's memory: worker -> partitions, as last recorded


def find_unsettled(tree: GroupState, seen: Basis) -> str:
    """Return the change that is in progress, in words; empty if none is."""
    grabs = {name: incarnation for name, incarnation in read_grabs(tree).items() if is_partition(name)}
    got = tree.owned(grabs) if grabs else {}
    if asked := [p for p, incarnation in grabs.items() if p not in got or got[p].incarnation != incarnation]:
        return f"asked for: {counted(len(asked), 'partition')}"
    known = [partition_id(name, key) for name, record in seen.partitions.items() for key in record.keys]
    named = _find_named(tree, known)
    if twice := [p for p, workers in named.items() if len(workers) > 1]:
        return f"named by two workers: {counted(len(twice), 'partition')}"
    counts = Counter(w for workers in named.values() for w in workers)
    if silent := sorted(find_silent(tree)):
        return f"{silent[0]} has not chosen yet"
    free = [
        w for w in seen.workers if w.state == "active" and (w.max_partitions is None or counts[w.id] < w.max_partitions)
    ]
    if free and (leaving := [w.id for w in seen.workers if w.state == "draining" and counts[w.id]]):
        return f"{leaving[0]} is draining"
    if waiting := [p for p in known if p not in named and _finds_taker(p, free, seen)]:
        return f"waiting for a worker: {counted(len(waiting), 'partition')}"
    incarnations = {worker_of(one): one for one in seen.members}
    owned = tree.owned(named)
    readable = (p for p in named if tree.paths.own(p) not in tree.unreadable)  # unreadable records wait for an operator
    late = [p for p in readable if p not in owned or owned[p].incarnation != incarnations[named[p][0]]]
    return f"changing hands: {counted(len(late), 'partition')}" if late else ""


def _find_named(tree: GroupState, known: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Map each known partition to the live workers whose own targets name it."""
    named: dict[str, tuple[str, ...]] = {}
    for worker, partitions in find_own_targets(tree).items():
        for partition in partitions.intersection(known):
            named[partition] = (*named.get(partition, ()), worker)
    return named


def _finds_taker(partition: str, workers: Iterable[Worker], seen: Basis) -> bool:
    requires = seen.partitions[partition.partition(":")[0]].requires
    kind = (tuple(sorted(requires.items())), seen.overrides.pins.get(partition))
    return any(matches(worker, kind) for worker in workers)


def see(tree: GroupState) -> tuple[GroupSnapshot, Plan]:
    """Return the current observation, and the moves since the last record as a plan."""
    memory = tree.controller().record.memory.get(KEY)
    noted = memory if isinstance(memory, Mapping) else {}
    before = {str(p): str(w) for w, ids in noted.items() if isinstance(ids, list) for p in ids}
    read = read_snapshot(tree, before)
    snapshot = read.snapshot
    place = {worker.id: i for i, worker in enumerate(snapshot.workers)}
    named = _find_named(tree, snapshot.partition_ids)
    owners = [place.get(named[p][0], -1) if p in named else -1 for p in snapshot.partition_ids]
    target = np.array(owners, np.int32)
    planned = describe(snapshot, target, _make_explainer(snapshot, target, read.basis.meta.protocol))
    return read, _remember(planned, snapshot, target)


def _make_explainer(snapshot: Snapshot, target: Codes, protocol: str) -> Callable[[int], str]:
    """Return the function that explains a voluntary move: "w2 claimed it from w1, which held 6 while the quota is 5"."""
    held = np.bincount(snapshot.owner[snapshot.owner >= 0], minlength=max(1, len(snapshot.workers)))
    active = sum(1 for worker in snapshot.workers if worker.state == "active")
    quota = -(-len(snapshot.partition_ids) // max(1, active))

    def explain(index: int) -> str:
        taker, giver = snapshot.workers[int(target[index])].id, snapshot.workers[int(snapshot.owner[index])].id
        if protocol == "ordinal":
            return f"{taker}'s slice has it, and {giver}'s no longer"
        count = int(held[int(snapshot.owner[index])])
        return f"{taker} claimed it from {giver}, which held {count} while the quota is {quota}"

    return explain


def _remember(planned: Plan, snapshot: Snapshot, target: Codes) -> Plan:
    """Return the plan with the current owners as its memory. A partition without an owner keeps its last recorded owner."""
    noted: dict[str, list[str]] = {}
    codes = np.where(target >= 0, target, snapshot.owner)
    for partition, code in zip(snapshot.partition_ids, codes.tolist(), strict=True):
        if (name := snapshot.name(code)) is not None:
            noted.setdefault(name, []).append(partition)
    return replace(planned, memory={KEY: noted})


def count_before(snapshot: Snapshot) -> dict[str, int]:
    """Map each worker to the number of partitions in the last record."""
    names = (snapshot.name(code) for code in snapshot.owner.tolist())
    return dict(Counter(name for name in names if name is not None))


def find_claim_times(tree: GroupState, planned: Plan) -> dict[str, float]:
    """Map each partition to the time of its taker's claim, in server seconds, for the moves that an epoch keeps.

    A partition that changed hands again has no entry.
    """
    takers = {move.partition: move.to_worker for move in islice(planned.moves, MAX_MOVES)}
    owns = tree.read_many([tree.paths.own(partition) for partition in takers], Own)
    reads = {partition: owns.get(tree.paths.own(partition)) for partition in takers}
    return {
        partition: read.node.mtime / 1000
        for partition, read in reads.items()
        if read is not None and worker_of(read.record.incarnation or "") == takers[partition]
    }
