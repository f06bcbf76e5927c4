"""Partitions that a protocol's rule would leave without an owner for ever, because of labels, pins, caps or cordons.

Laws:
1. A partition is stranded if no worker names it or asks for it, and every active worker that may hold it is at the limit
   of the rule. A partition that no active worker may hold waits, as under `assigned`.
2. For stranded partitions all workers compute the plan of `assigned` without voluntary moves, and each executes its own
   part: it takes its stranded partitions, and drops what must make room for one.
3. If every worker may hold every partition, no partition is stranded, and a published rule is executed as published.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rota.core.planner import plan
from rota.core.protocols.observation import Observation
from rota.core.values import Plan, Policy, Snapshot


@dataclass(frozen=True, slots=True)
class Rescue:
    """This worker's part: the stranded partitions that it takes, and what it drops to make room."""

    takes: frozenset[str] = frozenset()
    drops: frozenset[str] = frozenset()


def plan_together(seen: Observation, holders: Mapping[str, str], budget: int | None) -> Plan:
    """Return the `sticky` plan from what all announce. `budget` 0: without voluntary moves."""
    snapshot = Snapshot.of([m.worker for m in seen.members.values()], seen.partitions, holders)
    return plan(snapshot, policy=Policy(budget=budget))


def rescue_stranded(seen: Observation, holders: Mapping[str, str], limits: Mapping[str, float]) -> Rescue:
    """Return this worker's part by the laws of the module. `limits` is the most partitions of each worker by its rule."""
    counts = Counter(holders.values())
    active = [m.worker for m in seen.members.values() if m.worker.state == "active"]
    room = [w for w in active if counts[w.id] < limits[w.id]]
    free = seen.find_free((p.id for p in seen.partitions), holders)
    stuck = [p for p in seen.partitions if p.id in free and not any(seen.may_hold(p, w) for w in room)]
    stranded = {p.id for p in stuck if any(seen.may_hold(p, w) for w in active)}
    if not stranded:
        return Rescue()
    part = frozenset(plan_together(seen, holders, 0).assignment.as_dict().get(seen.me, ()))
    held = frozenset(p for p, worker in holders.items() if worker == seen.me)
    return Rescue(part & stranded, held - part)
