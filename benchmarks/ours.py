"""Times rota's own engine on one state, in a process of its own; prints one JSON line.

Timed: a Snapshot in memory -> a Plan in memory, moves included. Each call gets a Snapshot object of its own, so nothing
that an earlier call may have left behind helps.
"""

import gc
import json
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.states import Case, after, settled, yardstick
from rota.core import Plan, Snapshot, plan


def timed(snapshot: Snapshot, warm: int, runs: int, **how: Any) -> tuple[list[float], Plan]:
    """Milliseconds of `runs` calls after `warm` others, and the last plan."""
    times = []
    for i in range(warm + runs):
        fresh = replace(snapshot)
        start = time.perf_counter_ns()
        result = plan(fresh, **how)
        spent = time.perf_counter_ns() - start
        if i >= warm:
            times.append(spent / 1e6)
    return times, result


def rounds(case: Case) -> tuple[int, int]:
    """Calls before the clock counts, and calls that count: enough for a median, few where one takes long."""
    if case.overlap >= 0:
        return 2, 7
    return (5, 9) if case.partitions >= 300_000 else (30, 51)


def unweighted(case: Case) -> dict[str, Any]:
    """One state of the table of speed."""
    start = settled(case)
    snapshot = start if case.event == "fresh" else after(case, plan(start).assignment.target)
    gc.collect()
    gc.freeze()
    before = peak_mib()
    times, result = timed(snapshot, *rounds(case))
    counts = np.bincount(result.assignment.target, minlength=len(snapshot.workers))
    return {
        "ms": times,
        "moves": int(((snapshot.owner >= 0) & (snapshot.owner != result.assignment.target)).sum()),
        "lowest": int(counts.min()),
        "highest": int(counts.max()),
        "squares": int((counts.astype(object) ** 2).sum()),
        "spread": source_squares(result),
        "peak_mib": peak_mib(),
        "before_mib": before,
        "note": result.measures.reason,
    }


def source_squares(result: Plan) -> int:
    """Sum over sources and workers of count squared: how evenly each source is spread."""
    snapshot = result.assignment.snapshot
    width = len(snapshot.workers)
    cells = np.bincount(snapshot.source.astype(np.int64) * width + result.assignment.target)
    return int((cells.astype(np.int64) ** 2).sum())


def weighted(partitions: int, workers: int, budget: int | None) -> dict[str, Any]:
    """The weighted yardstick with `budget` voluntary moves."""
    snapshot = yardstick() if partitions == 100 else yardstick((partitions, workers, 2, 0.5))
    options = {"tolerance": 1.0} if budget is None else {"budget": budget, "tolerance": 1.0}
    times, result = timed(snapshot, 2, 5, assignor="sticky-load", options=options)
    measures = result.measures
    return {
        "ms": times,
        "moves": measures.moves,
        "before": measures.imbalance_before,
        "after": measures.imbalance_after,
        "bound": measures.lower_bound,
        "peak_mib": peak_mib(),
    }


def peak_mib() -> int:
    """The most memory this process ever held; getrusage would count what its parent held at the fork."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    what = json.loads(sys.argv[1])
    answer = weighted(**what["weighted"]) if "weighted" in what else unweighted(Case(**what["case"]))
    sys.stdout.write(json.dumps(answer) + "\n")
