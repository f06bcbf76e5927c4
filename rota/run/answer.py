"""Answers a click or a backfill: consumes what is new in the partitions that were asked for, whoever owns them now.

Laws:
1. Each partition gets one answer or more: what became of it, or why nobody may work on it.
2. A partition that another run works on is waited for and then looked at again. One that is parked, unowned or of another
   group is not waited for.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from rota.coordination.group_state import GroupState
from rota.dataplane.ports import Ports
from rota.pipeline import Pipeline
from rota.run.consume import DroppedPartition, Event, consume
from rota.run.work import read_owners

PAUSE = 0.5  # seconds until a partition is looked at again that another run works on
LOSSES = 20  # for a partition that is lost each time between the look and the batch


def answer(
    tree: GroupState,
    pipeline: Pipeline,
    partitions: Sequence[str],
    run_id: str,
    ports: Ports,
    *,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[str, Event]]:
    """Yields each event with the incarnation that it concerns; that is empty where nobody may work on the partition. Raises
    as `consume` does."""
    asked, lost = tuple(partitions), Counter[str]()
    while asked:
        share = read_owners(tree, pipeline, asked)
        yield from (("", DroppedPartition(p, why)) for p, why in share.skipped.items() if p not in share.busy)
        again = list(share.busy)
        for incarnation, mine in share.by_incarnation.items():
            for event in consume(tree, pipeline, incarnation, mine, run_id, ports):
                lost[event.partition] += isinstance(event, DroppedPartition)
                if isinstance(event, DroppedPartition) and lost[event.partition] < LOSSES:
                    again.append(event.partition)  # it changed hands, or another run was first: the next look tells
                else:
                    yield incarnation, event
        asked = tuple(again)
        if asked:
            wait(PAUSE)
