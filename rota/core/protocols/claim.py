"""`claim`, the Event Processor's protocol: each worker takes free partitions and asks a worker with too many for one.

Laws of the default, `steal="even"`: all workers compute the same sticky plan from what all announce, and each worker
executes its own part. It takes its share of the free partitions at once, and asks for its share of those that others
hold. A worker gives a partition up when another worker asks for it, so each partition that moves has a taker. In a
balanced group no worker asks. Labels, pins, caps, cordons and drains hold as under `assigned`.

Laws of `steal="published"`, which exists for comparison: every `interval` x (1 + U[0, 0.2)) seconds a worker counts N,
the workers that own something plus itself; min = P // N, max = ceil(P / N), both at most its own cap. Below max it takes
one random free partition (`strategy="greedy"`: as many as it lacks). If none is free and it holds less than min, it asks
for one random partition of the worker that holds most. Consequences: the counts 4, 2, 2, 2 do not change, a worker that
owns nothing is not counted, and a worker gains one partition a round. The published text has no labels, pins,
caps and cordons. If these would leave partitions without an owner, `rota.core.protocols.stranded` places them, once a round.

In both variants claims do not expire by a clock: an owner whose incarnation is gone owns nothing.
"""

from collections import Counter
from collections.abc import Mapping, Set
from random import Random
from typing import Any

from rota.core.protocols.observation import Decision, Observation
from rota.core.protocols.stranded import plan_together, rescue_stranded

SPREAD = 0.2  # of the interval, drawn at random, so that the rounds of two workers drift apart


def decide(seen: Observation, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Decision:
    """Return the decision by the laws of the module."""
    if options["steal"] == "published":
        return _decide_published(seen, options, memory)
    return _decide_evenly(seen)


def _decide_evenly(seen: Observation) -> Decision:
    holders = seen.find_holders()
    planned = plan_together(seen, holders, 0 if seen.paused else None)
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
    may = {p.id for p in seen.partitions if seen.may_hold(p)}
    cap = len(may) if me.max_partitions is None else me.max_partitions
    asks = (seen.asks - seen.owned) & may
    kept = set(sorted((seen.kept & may) - asks, key=lambda p: (p not in seen.owned, p))[:cap])
    asks = frozenset(sorted(asks)[: cap - len(kept)])
    due = float(memory.get("due", seen.now))
    if seen.now < due or me.state == "cordoned":
        return Decision(frozenset(kept | asks), asks, {"due": due}, due, bool(asks))
    due = seen.now + options["interval"] * (1 + SPREAD * seen.draw)
    holders = seen.find_holders()
    counts = Counter(holders.values())
    rescue = rescue_stranded(seen, holders, {name: _find_most(seen, counts, name) for name in seen.members})
    kept, asks = (kept - rescue.drops) | rescue.takes, asks - rescue.drops
    least = min(cap, len(seen.partitions) // len(counts.keys() | {seen.me}))
    lacks = _find_most(seen, counts, seen.me) - len(kept | asks)
    free = sorted(seen.find_free(may, holders) - kept)
    if lacks > 0 and free:
        kept |= set(random.sample(free, min(lacks, len(free)) if options["strategy"] == "greedy" else 1))
    elif len(kept) < least and not asks and not seen.paused:
        asks = _ask_the_richest(seen, holders, may, random)
    return Decision(frozenset(kept | asks), asks, {"due": due}, due, bool(asks))


def _find_most(seen: Observation, counts: Mapping[str, int], worker: str) -> int:
    """Return the largest number of partitions that the worker takes: max, or its cap if that is less."""
    most = -(-len(seen.partitions) // len(counts.keys() | {worker}))
    cap = seen.members[worker].worker.max_partitions
    return most if cap is None else min(cap, most)


def _ask_the_richest(seen: Observation, holders: Mapping[str, str], may: Set[str], random: Random) -> frozenset[str]:
    """Return one random partition of the other worker that holds most.

    Returns none if that worker holds fewer than two more than this one: a steal would only exchange their roles. Below
    min, some worker always holds two more if every worker may hold every partition.
    """
    counts = Counter(holders.values())
    others = [(-count, worker) for worker, count in counts.items() if worker != seen.me]
    if not others or -min(others)[0] - counts[seen.me] < 2:
        return frozenset()
    rich = min(others)[1]
    theirs = sorted(p for p, holder in holders.items() if holder == rich and p in may and p not in seen.grabs)
    return frozenset([random.choice(theirs)] if theirs else ())
