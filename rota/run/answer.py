"""Answers a click or a backfill: consumes the new records of the selected partitions, for their current owners.

Laws:
1. Each partition yields at least one event: what the run did with it, or why no run may work on it.
2. If another run works on a partition, the call waits and tries the partition again. It does not wait for a parked,
   unowned or unknown partition.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from rota.coordination.group_state import GroupState
from rota.dataplane.ports import Ports
from rota.pipeline import Pipeline
from rota.run.consume import DroppedPartition, Event, consume
from rota.run.work import read_owners

RETRY_INTERVAL = 0.5  # seconds until a partition that another run works on is tried again
MAX_LOSSES = 20  # times that one partition may change hands between the check and the batch


def answer(
    tree: GroupState,
    pipeline: Pipeline,
    partitions: Sequence[str],
    run_id: str,
    ports: Ports,
    *,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[str, Event]]:
    """Consume the new records of these partitions.

    Yields:
        each event with the incarnation that it concerns; the incarnation is empty if no worker may work on the
            partition.

    Raises:
        the errors of `consume`.
    """
    asked, lost = tuple(partitions), Counter[str]()
    while asked:
        share = read_owners(tree, pipeline, asked)
        yield from (("", DroppedPartition(p, why)) for p, why in share.skipped.items() if p not in share.busy)
        again = list(share.busy)
        for incarnation, mine in share.by_incarnation.items():
            for event in consume(tree, pipeline, incarnation, mine, run_id, ports):
                lost[event.partition] += isinstance(event, DroppedPartition)
                if isinstance(event, DroppedPartition) and lost[event.partition] < MAX_LOSSES:
                    again.append(event.partition)  # the owner changed, or another run was first: try it again
                else:
                    yield incarnation, event
        asked = tuple(again)
        if asked:
            wait(RETRY_INTERVAL)
