"""Yelp kafka-utils' genetic balancer on the weighted yardstick; runs in a venv of its own and prints one JSON line.

One replica a partition, every partition of size 1, so that its `max_movement_size` is a budget of moves; the weights are
handed over as they are.
"""

import argparse
import json
import sys
import time

from kafka_utils.kafka_cluster_manager.cluster_info.cluster_topology import ClusterTopology
from kafka_utils.kafka_cluster_manager.cluster_info.genetic_balancer import GeneticBalancer


class Weights:
    """The partition measurer that the topology asks."""

    def __init__(self, weight):
        self.weight = weight

    def get_weight(self, name):
        return self.weight[name[1]]

    def get_size(self, _name):
        return 1.0


def main(weight, owner, workers, budget):
    topology = ClusterTopology(
        {("t", i): [o] for i, o in enumerate(owner)},
        {i: {"host": f"w{i}"} for i in range(workers)},
        Weights(weight),
        lambda _broker: "one",
    )
    args = argparse.Namespace(
        brokers=True, leaders=False, replication_groups=False, max_partition_movements=budget, max_movement_size=budget
    )
    balancer = GeneticBalancer(topology, args)
    start = time.perf_counter()
    balancer.rebalance()
    spent = (time.perf_counter() - start) * 1e3
    after = [topology.assignment[("t", i)][0] for i in range(len(owner))]
    loads = [0.0] * workers
    for w, o in zip(weight, after, strict=True):
        loads[o] += w
    peak = peak_mib()
    ratio = max(loads) / (sum(loads) / workers)
    moves = sum(a != b for a, b in zip(owner, after, strict=True))
    return {"ms": [spent], "moves": moves, "after": ratio, "peak_mib": peak}


def peak_mib():
    """The most memory this process ever held; getrusage would count what its parent held at the fork."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(**json.load(sys.stdin))) + "\n")
