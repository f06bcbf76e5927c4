"""Times rota's planner on one state, in a process of its own, and prints one JSON line.

The time is from a Snapshot in memory to a Plan in memory, with its moves. Each call gets a Snapshot object of its own, so
it cannot reuse what an earlier call computed.
"""

import gc
import json
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.states import Case, build_group, build_state, build_yardstick
from rota.core import Plan, Snapshot, plan


def time_plans(snapshot: Snapshot, warm: int, runs: int, **how: Any) -> tuple[list[float], Plan]:
    """The milliseconds of `runs` calls after `warm` untimed ones, and the last plan."""
    times = []
    for i in range(warm + runs):
        fresh = replace(snapshot)
        start = time.perf_counter_ns()
        result = plan(fresh, **how)
        spent = time.perf_counter_ns() - start
        if i >= warm:
            times.append(spent / 1e6)
    return times, result


def choose_rounds(case: Case) -> tuple[int, int]:
    """How many calls are not timed, and how many are."""
    if case.overlap >= 0:
        return 2, 7
    return (5, 9) if case.partitions >= 300_000 else (30, 51)


def time_counts(case: Case) -> dict[str, Any]:
    """Times `sticky` on one state."""
    start = build_group(case)
    snapshot = start if case.event == "fresh" else build_state(case, plan(start).assignment.target)
    gc.collect()
    gc.freeze()
    before = read_peak_mib()
    times, result = time_plans(snapshot, *choose_rounds(case))
    counts = np.bincount(result.assignment.target, minlength=len(snapshot.workers))
    return {
        "ms": times,
        "moves": int(((snapshot.owner >= 0) & (snapshot.owner != result.assignment.target)).sum()),
        "lowest": int(counts.min()),
        "highest": int(counts.max()),
        "squares": int((counts.astype(object) ** 2).sum()),
        "spread": sum_source_squares(result),
        "peak_mib": read_peak_mib(),
        "before_mib": before,
        "note": result.measures.reason,
    }


def sum_source_squares(result: Plan) -> int:
    """The sum over sources and workers of count squared. It is lower the more evenly each source is spread."""
    snapshot = result.assignment.snapshot
    width = len(snapshot.workers)
    cells = np.bincount(snapshot.source.astype(np.int64) * width + result.assignment.target)
    return int((cells.astype(np.int64) ** 2).sum())


def time_weighted(partitions: int, workers: int, budget: int | None) -> dict[str, Any]:
    """Times `sticky-load` on the weighted yardstick with `budget` voluntary moves, None for no bound."""
    snapshot = build_yardstick() if partitions == 100 else build_yardstick((partitions, workers, 2, 0.5))
    options = {"tolerance": 1.0} if budget is None else {"budget": budget, "tolerance": 1.0}
    times, result = time_plans(snapshot, 2, 5, assignor="sticky-load", options=options)
    measures = result.measures
    return {
        "ms": times,
        "moves": measures.moves,
        "before": measures.imbalance_before,
        "after": measures.imbalance_after,
        "bound": measures.lower_bound,
        "peak_mib": read_peak_mib(),
    }


def read_peak_mib() -> int:
    """The peak memory of this process in MiB. getrusage would include the memory of its parent at the fork."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    what = json.loads(sys.argv[1])
    answer = time_weighted(**what["weighted"]) if "weighted" in what else time_counts(Case(**what["case"]))
    sys.stdout.write(json.dumps(answer) + "\n")
