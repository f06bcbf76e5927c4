"""Azure's OwnershipManager over an in-memory store with its own clock; prints one JSON line.

One round is one call of `claim_ownership` by every live processor, one after another in a seeded order: one load
balancing interval, 30 s by default. Counted: rounds until every partition is owned and max - min <= 1, owner changes,
and the owner changes in the 20 rounds after that. Also the seconds until the last of those changes; partition-seconds
without a live owner; partition-seconds in which a processor still works on a partition that was taken from it; and the
records that a processor reads and writes in a minute, until then (busy) and in the 20 rounds.
"""

import copy
import json
import random
import sys
import time
import types
import uuid

import azure.eventhub._eventprocessor.ownership_manager as rules
from azure.eventhub._eventprocessor.common import LoadBalancingStrategy

NOW = [1000.0]
INTERVAL = 30.0
rules.time = types.SimpleNamespace(time=lambda: NOW[0])


class Store:
    """A checkpoint store with ETags."""

    def __init__(self):
        self.records, self.changes, self.changed = {}, 0, 0.0
        self.reads = self.writes = 0
        self.unaware = {}  # partition -> the owner it was taken from, and when
        self.doubly = self.unowned = 0.0

    def forget(self):
        """From now on it is counted."""
        self.changes, self.doubly, self.unowned, self.changed = 0, 0.0, 0.0, NOW[0]
        self.reads = self.writes = 0
        self.unaware.clear()

    def list_ownership(self, *_, **__):
        self.reads += len(self.records)
        return [copy.copy(r) for r in self.records.values()]

    def claim_ownership(self, wanted, **_):
        taken = []
        for record in wanted:
            now = self.records.get(record["partition_id"])
            if now is not None and now["etag"] != record.get("etag"):
                continue
            self.writes += 1
            if now is None or now["owner_id"] != record["owner_id"]:
                self.changes += 1
                self.changed = NOW[0]
                if now is not None:
                    self.unaware.setdefault(record["partition_id"], (now["owner_id"], NOW[0]))
            fresh = dict(record, etag=str(uuid.uuid4()), last_modified_time=NOW[0])
            self.records[record["partition_id"]] = fresh
            taken.append(dict(fresh))
        return taken


class Client:
    """An event hub of P partitions."""

    eventhub_name = "h"
    _address = types.SimpleNamespace(hostname="n")

    def __init__(self, partitions):
        self.partitions = partitions

    def get_partition_ids(self):
        return [str(i) for i in range(self.partitions)]


def counts(store, live):
    held = dict.fromkeys(live, 0)
    for record in store.records.values():
        if record["owner_id"] in held:
            held[record["owner_id"]] += 1
    return held.values()


def one_round(processors, rng, store, partitions):
    live = {p.owner_id for p in processors}
    for processor in rng.sample(processors, len(processors)):
        processor.claim_ownership()
        for partition, (loser, when) in list(store.unaware.items()):
            if loser not in live or loser == processor.owner_id:
                store.doubly += NOW[0] - when if loser in live else 0.0
                del store.unaware[partition]
        step = INTERVAL / len(processors)
        store.unowned += step * (partitions - sum(counts(store, live)))
        NOW[0] += step


def converge(processors, store, partitions, rng, cap):
    for done in range(cap):
        held = counts(store, [p.owner_id for p in processors])
        if sum(held) == partitions and max(held) - min(held) <= 1:
            return done
        one_round(processors, rng, store, partitions)
    return None


def main(partitions, workers, event, strategy, seed, cap):
    random.seed(seed)
    rng = random.Random(seed)
    store, how = Store(), LoadBalancingStrategy(strategy)

    def processor(name):
        return rules.OwnershipManager(Client(partitions), "g", name, store, 180.0, how, None)

    team = [processor(f"w{i}") for i in range(workers)]
    if event != "fresh":
        converge(team, store, partitions, rng, 4 * partitions)
        team = [*team, processor("new")] if event == "add1" else team[1:]
    store.forget()
    began, start = NOW[0], time.perf_counter()
    rounds = converge(team, store, partitions, rng, cap)
    spent = (time.perf_counter() - start) * 1e3
    changes = store.changes
    seconds, unowned = store.changed - began, store.unowned
    busy = max(rounds or 0, 1) * INTERVAL / 60 * len(team)
    busy_reads, busy_writes = store.reads / busy, store.writes / busy
    store.reads = store.writes = 0
    for _ in range(20):
        one_round(team, rng, store, partitions)
    minutes = 20 * INTERVAL / 60 * len(team)
    held = counts(store, [p.owner_id for p in team])
    peak = peak_mib()
    return {
        "ms": [spent],
        "rounds": rounds,
        "changes": changes,
        "after": store.changes - changes,
        "spread": max(held) - min(held),
        "seconds": seconds,
        "doubly": store.doubly,
        "unowned": unowned,
        "reads": store.reads / minutes,
        "writes": store.writes / minutes,
        "busy_reads": busy_reads,
        "busy_writes": busy_writes,
        "peak_mib": peak,
    }


def peak_mib():
    """The most memory this process ever held; getrusage would count what its parent held at the fork."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(**json.loads(sys.argv[1]))) + "\n")
