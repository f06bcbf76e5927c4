"""Who may hold what (law 1): labels, zone and pin, as columns over workers."""

import numpy as np

from rota.core.run_length import runs
from rota.core.values import NOBODY, Bools, Codes, Kind, Snapshot, Worker

ANYBODY: Kind = ((), None)
LONG = 50_000  # a column from which on it pays to count runs


def matches(worker: Worker, kind: Kind) -> bool:
    """Whether `worker` carries every label that `kind` requires (`zone` counts as one) and is the one it is pinned to."""
    requires, pin = kind
    return (pin is None or pin == worker.id) and all(_label(worker, name) == value for name, value in requires)


def _label(worker: Worker, name: str) -> str | None:
    if name == "zone" and worker.zone is not None:
        return worker.zone
    return worker.labels.get(name)


def matching(snapshot: Snapshot) -> Bools:
    """Kinds x workers: who matches, whatever its state."""
    table = np.ones((len(snapshot.kinds), len(snapshot.workers)), np.bool_)
    for k, kind in enumerate(snapshot.kinds):
        if kind != ANYBODY:
            table[k] = [matches(worker, kind) for worker in snapshot.workers]
    return table


def rightful(snapshot: Snapshot, match: Bools) -> Codes:
    """The owner column with NOBODY where the owner is gone, draining or does not match: what may be kept."""
    owner = snapshot.owner
    if not snapshot.workers:
        return np.full(len(owner), NOBODY, np.int32)
    if snapshot.team.plain and match.all():
        return owner if int(owner.min(initial=0)) >= NOBODY else np.maximum(owner, np.int32(NOBODY))
    somebody = np.maximum(owner, 0)
    keeps = (owner >= 0) & ~snapshot.team.draining[somebody] & match[snapshot.kind, somebody]
    return np.where(keeps, owner, np.int32(NOBODY))


def counted(column: Codes, workers: int, weight: np.ndarray | None = None) -> np.ndarray:
    """How many (or how much weight) each worker has in `column`; codes below 0 count nowhere."""
    if weight is None and len(column) > LONG and len(column) > 8 * np.count_nonzero(column[1:] != column[:-1]):
        start, length = runs(column)
        return counted(column[start], workers, length).astype(np.int64)
    if int(column.min(initial=0)) < 0:
        held = column >= 0
        column, weight = column[held], None if weight is None else weight[held]
    found = np.bincount(column, weight, minlength=workers)
    return (
        found if weight is None else found.astype(np.float64, copy=False)
    )  # of nothing, bincount counts whole numbers
