"""Law 1: which worker may hold which partition, by label, zone and pin, as columns over workers."""

import numpy as np

from rota.core.values import UNOWNED, Bools, Codes, Kind, Snapshot, Worker

ANY_WORKER: Kind = ((), None)


def matches(worker: Worker, kind: Kind) -> bool:
    """Whether `worker` carries every label that `kind` requires and is its pin, if it has one. `zone` is a label too."""
    requires, pin = kind
    return (pin is None or pin == worker.id) and all(_read_label(worker, name) == value for name, value in requires)


def _read_label(worker: Worker, name: str) -> str | None:
    if name == "zone" and worker.zone is not None:
        return worker.zone
    return worker.labels.get(name)


def find_matches(snapshot: Snapshot) -> Bools:
    """The table kinds x workers of `matches`. A worker's state plays no part in it."""
    table = np.ones((len(snapshot.kinds), len(snapshot.workers)), np.bool_)
    for k, kind in enumerate(snapshot.kinds):
        if kind != ANY_WORKER:
            table[k] = [matches(worker, kind) for worker in snapshot.workers]
    return table


def find_valid_owners(snapshot: Snapshot, match: Bools) -> Codes:
    """The owner column, with UNOWNED where the owner is gone, is draining, or does not match."""
    owner = snapshot.owner
    if not snapshot.workers:
        return np.full(len(owner), UNOWNED, np.int32)
    if snapshot.team.plain and match.all():
        return owner if int(owner.min(initial=0)) >= UNOWNED else np.maximum(owner, np.int32(UNOWNED))
    owner_index = np.maximum(owner, 0)
    keeps = (owner >= 0) & ~snapshot.team.draining[owner_index] & match[snapshot.kind, owner_index]
    return np.where(keeps, owner, np.int32(UNOWNED))
