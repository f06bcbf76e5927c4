"""kazoo's SetPartitioner rule on one state; runs in a venv of its own and prints one JSON line.

Timed: what all workers compute together, each for itself, once the party is known (no ZooKeeper in it).
"""

import json
import sys
import time

from kazoo.recipe.partitioner import SetPartitioner


def allocate(partitions, workers):
    """Every worker's own slice, by the recipe's own function."""
    rule = SetPartitioner._partitioner
    return {w: rule(None, w, workers, partitions) for w in workers}


def main(partitions, workers, event):
    ids = [f"p{i:07}" for i in range(partitions)]
    team = [f"w{i:05}" for i in range(workers)]
    was = {} if event == "fresh" else {p: w for w, parts in allocate(ids, team).items() for p in parts}
    more = {"add1": 1, "add10": max(1, workers // 10)}.get(event, 0)
    team += [f"w{workers + i:05}" for i in range(more)]
    if event == "sub1":
        del team[workers // 2]
    start = time.perf_counter()
    after = allocate(ids, team)
    spent = (time.perf_counter() - start) * 1e3
    moves = sum(1 for w, parts in after.items() for p in parts if p in was and was[p] in after and was[p] != w)
    counts = [len(parts) for parts in after.values()]
    peak = peak_mib()
    return {"ms": [spent], "moves": moves, "lowest": min(counts), "highest": max(counts), "peak_mib": peak}


def peak_mib():
    """The most memory this process ever held; getrusage would count what its parent held at the fork."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(**json.loads(sys.argv[1]))) + "\n")
