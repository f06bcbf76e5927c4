"""`claim`, the Event Processor's protocol: each worker takes what nobody has, and asks who holds too many for one.

Laws of the default, `steal="even"`: everybody computes the same sticky plan from what all announce, and each does its own
part of it. It takes its part of what nobody names, at once, and asks for its part of what others hold. Who is asked drops
the partition, and nothing else: so whatever moves has a taker. A balanced group asks for nothing. Labels, pins, caps,
cordons and drains hold as under `assigned`.

Laws of `steal="published"`, which is there to be compared: once in `interval` x (1 + U[0, 0.2)) seconds a worker counts
those that own something and itself, N; min = P // N, max = ceil(P / N). Below max it takes one random partition that nobody
has (`strategy="greedy"`: as many as it lacks). Only if there is none and it holds less than min, it asks for one random
partition of the richest. So 4, 2, 2, 2 stays, who owns nothing is not seen, and a fill is one a round.

In both there is no clock that lets a claim expire: an owner whose incarnation is gone owns nothing.
"""

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from rota.core.planner import plan
from rota.core.protocols.observation import Decision, Observation
from rota.core.values import Policy, Snapshot

SPREAD = 0.2  # of the published interval, by which two rounds of two workers part


def decide(seen: Observation, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Decision:
    """See the laws of the module."""
    if options["steal"] == "published":
        return _decide_published(seen, options, memory)
    return _decide_evenly(seen)


def _decide_evenly(seen: Observation) -> Decision:
    holders = seen.find_holders()
    snapshot = Snapshot.of([m.worker for m in seen.members.values()], seen.partitions, holders)
    planned = plan(snapshot, policy=Policy(budget=0 if seen.paused else None))
    part = frozenset(planned.assignment.as_dict().get(seen.me, ()))
    asks = {p for p in part - seen.owned if holders.get(p) not in (None, seen.me) or p in seen.asks}
    asks = {p for p in asks if seen.grabs.get(p, seen.me) == seen.me}
    withdrawn = seen.asks - asks - seen.owned
    nobodys = {one.partition for one in planned.unassigned}
    known = seen.kept.intersection(p.id for p in seen.partitions)
    target = (known - withdrawn - nobodys) | asks | seen.find_free(part, holders)
    return Decision(target, frozenset(asks), pending=bool(asks or part - target))


def _decide_published(seen: Observation, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Decision:
    me, random = seen.mine.worker, Random(seen.draw)
    if me.state == "draining":
        return Decision(frozenset())
    may = {p.id: p for p in seen.partitions if seen.may_hold(p)}
    cap = len(may) if me.max_partitions is None else me.max_partitions
    asks = seen.asks - seen.owned
    kept = sorted((seen.kept & may.keys()) | asks)[: max(cap, 0)]
    due = float(memory.get("due", seen.now))
    if seen.now < due or me.state == "cordoned" or seen.paused:
        return Decision(frozenset(kept), frozenset(asks), {"due": due}, due, bool(asks))
    due = seen.now + options["interval"] * (1 + SPREAD * seen.draw)
    holders = seen.find_holders()
    counts = Counter(holders.values())
    owners = len(counts.keys() | {seen.me})
    least, most = len(seen.partitions) // owners, min(cap, -(-len(seen.partitions) // owners))
    target = set(kept)
    free = sorted(seen.find_free(may, holders))
    lacks = most - len(kept)
    if lacks > 0 and free:
        target |= set(random.sample(free, min(lacks, len(free)) if options["strategy"] == "greedy" else 1))
    elif len(kept) < least and not asks and (rich := _find_richest(counts, seen.me)) is not None:
        theirs = sorted(p for p, holder in holders.items() if holder == rich and p in may and p not in seen.grabs)
        asks = frozenset([random.choice(theirs)]) if theirs else asks
    return Decision(frozenset(target | asks), frozenset(asks), {"due": due}, due, bool(asks))


def _find_richest(counts: Mapping[str, int], me: str) -> str | None:
    """Who holds most, of those that are not this worker; None if nobody else holds anything."""
    others = [(-count, worker) for worker, count in counts.items() if worker != me]
    return min(others)[1] if others else None
