"""Who may hold what (law 1): labels, zone and pin, as columns over workers."""

import numpy as np

from rota.core.values import NOBODY, Bools, Codes, Kind, Snapshot, Worker

ANYBODY: Kind = ((), None)


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
