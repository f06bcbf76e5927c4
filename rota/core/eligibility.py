"""Who may hold what (law 1): labels, zone, pin, state and cap, as columns over workers."""

import numpy as np

from rota.core.values import UNLIMITED, Bools, Ints, Kind, Snapshot, Worker


def matches(worker: Worker, kind: Kind) -> bool:
    """Whether `worker` carries every label that `kind` requires (`zone` counts as one) and is the one it is pinned to."""
    requires, pin = kind
    if pin is not None and pin != worker.id:
        return False
    return all(
        (worker.zone if name == "zone" and worker.zone is not None else worker.labels.get(name)) == value
        for name, value in requires
    )


def matching(snapshot: Snapshot) -> Bools:
    """Kinds x workers: who matches, whatever its state."""
    table = np.ones((len(snapshot.kinds), len(snapshot.workers)), np.bool_)
    for k, kind in enumerate(snapshot.kinds):
        if kind != ((), None):
            table[k] = [matches(worker, kind) for worker in snapshot.workers]
    return table


def has_state(snapshot: Snapshot, state: str) -> Bools:
    """Workers in this state."""
    return np.fromiter((w.state == state for w in snapshot.workers), np.bool_, len(snapshot.workers))


def caps(snapshot: Snapshot) -> Ints:
    """The most partitions each worker may hold by its `max_partitions`; UNLIMITED without one."""
    limits = (UNLIMITED if w.max_partitions is None else w.max_partitions for w in snapshot.workers)
    return np.fromiter(limits, np.int64, len(snapshot.workers))
