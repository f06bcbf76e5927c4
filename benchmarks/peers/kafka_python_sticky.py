"""kafka-python's sticky assignor on one state; runs in a venv of its own and prints one JSON line.

Timed: ready member objects -> assignment. New member objects each call, made outside the timed part.
"""

import json
import sys
import time
from collections import namedtuple

from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.structs import TopicPartition

Member = namedtuple("Member", "member_id metadata")


class Cluster:
    """The two questions that the assignor asks of the cluster's metadata."""

    def __init__(self, sizes):
        self.sizes = sizes

    def topics(self):
        return set(self.sizes)

    def partitions_for_topic(self, topic):
        return set(range(self.sizes[topic]))


def call(owned, sizes, generation):
    """Seconds of one assignment, and its result."""
    members = [
        Member(name, StickyPartitionAssignor._metadata(sorted(sizes), parts or None, generation))
        for name, parts in owned.items()
    ]
    start = time.perf_counter()
    result = StickyPartitionAssignor().assign(Cluster(sizes), members)
    spent = time.perf_counter() - start
    return spent, {m: [TopicPartition(t, p) for t, p in a.partitions()] for m, a in result.items()}


def main(partitions, workers, event, sources, runs):
    sizes = {f"t{s:03}": partitions // sources for s in range(sources)}
    owned = {f"w{i:05}": [] for i in range(workers)}
    if event != "fresh":
        owned = call(owned, sizes, 1)[1]
    more = {"add1": 1, "add10": max(1, workers // 10)}.get(event, 0)
    owned.update({f"w{workers + i:05}": [] for i in range(more)})
    if event == "sub1":
        del owned[f"w{workers // 2:05}"]
    times = []
    for _ in range(runs):
        spent, after = call(owned, sizes, 2)
        times.append(spent * 1e3)
    was = {p: m for m, parts in owned.items() for p in parts}
    moves = sum(1 for m, parts in after.items() for p in parts if was.get(p, m) != m)
    counts = [len(parts) for parts in after.values()]
    peak = peak_mib()
    return {"ms": times, "moves": moves, "lowest": min(counts), "highest": max(counts), "peak_mib": peak}


def peak_mib():
    """The most memory this process ever held; getrusage would count what its parent held at the fork."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(**json.loads(sys.argv[1]))) + "\n")
