"""`ordinal`, the StatefulSet's protocol: worker i of n gets the i-th slice of the partitions.

Laws:
1. An ordinal belongs to one live worker at a time, by an ephemeral node. It is the ordinal that the worker was started
   with, else the number at the end of its id (`name-3`) if that is free, else the lowest free ordinal.
2. Without `replicas`, n counts the live workers that have an ordinal and are not draining, and i is the rank of the
   worker's ordinal among theirs, so each slice has a worker despite gaps. With `replicas`, as on Kubernetes, n is
   `replicas` and i is the ordinal.
3. A worker drops partitions outside its slice at once, and takes those in its slice once no live worker names them.
   Therefore two workers that count differently never name one partition for long, and never own one together.
4. `slices`: `published` gives the remainder to the last worker, `spread` one each to the first workers, `sticky` moves
   the fewest when the highest ordinal comes or goes. Labels, pins and caps are obeyed by the nearest valid assignment.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rota.core.assignors.baselines.memoryless import assign_slices
from rota.core.protocols.observation import Decision, Observation
from rota.core.values import Partition, Snapshot, Worker

NAME = "ordinal-"


def decide(seen: Observation, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Decision:  # noqa: ARG001
    """Return the decision by the laws of the module."""
    held = {_number(name): worker for name, worker in seen.grabs.items() if name.startswith(NAME)}
    lowest = {worker: n for n, worker in sorted(held.items(), reverse=True)}
    mine = lowest.get(seen.me)
    wanted = _choose(seen, held) if mine is None else mine
    if wanted is None:
        note = f"ordinal {seen.ordinal} is {held[seen.ordinal or 0]}'s: it takes nothing until that is gone"
        return Decision(frozenset(), note=note)
    grabs = frozenset({f"{NAME}{wanted}"})
    if seen.replicas is not None and wanted >= seen.replicas:
        note = f"ordinal {wanted} is not below --replicas {seen.replicas}: no slice is its"
        return Decision(frozenset(), grabs, note=note)
    if mine is None:
        return Decision(frozenset(), grabs, pending=True)
    part = _find_slice(seen, {n: worker for worker, n in lowest.items()}, mine, options["slices"])
    target = (seen.kept & part) | seen.find_free(part, seen.find_holders())
    return Decision(target, grabs, pending=target != part)


def _number(name: str) -> int:
    return int(name.removeprefix(NAME)) if name.removeprefix(NAME).isdigit() else -1


def _choose(seen: Observation, held: Mapping[int, str]) -> int | None:
    """Return the ordinal to ask for. None: another worker holds the ordinal that this worker was started with."""
    if seen.ordinal is not None:
        return seen.ordinal if seen.ordinal not in held else None
    ends = re.search(r"-(\d{1,6})$", seen.me)
    if ends and int(ends[1]) not in held:
        return int(ends[1])
    return next(n for n in range(len(held) + 1) if n not in held)


def _find_slice(seen: Observation, held: Mapping[int, str], mine: int, slices: str) -> frozenset[str]:
    """Return the partitions of this worker's slice. The slices are made for workers that are renamed to their ordinals."""
    holders = seen.find_holders()
    names = {worker: f"o-{n}" for n, worker in held.items()}
    team = [replace(seen.members[worker].worker, id=names[worker], capacity=1.0) for worker in held.values()]
    if seen.replicas is not None:
        team = [one for one in team if int(one.id[2:]) < seen.replicas]
        team += [Worker(f"o-{n}") for n in range(seen.replicas) if n not in held]
    partitions = [_rename_pin(one, names) for one in seen.partitions]
    owners = {p: names[worker] for p, worker in holders.items() if worker in names}
    ids = {one.id for one in team}
    snapshot = Snapshot.of(team, partitions, {p: name for p, name in owners.items() if name in ids})
    target = assign_slices(snapshot, slices).target
    code = next(i for i, one in enumerate(snapshot.workers) if one.id == f"o-{mine}")
    return frozenset(p for p, worker in zip(snapshot.partition_ids, target.tolist(), strict=True) if worker == code)


def _rename_pin(partition: Partition, names: Mapping[str, str]) -> Partition:
    return partition if partition.pin is None else replace(partition, pin=names.get(partition.pin, ""))
