"""Law 1 of every assignor, validity: which worker may hold which partition, by label, zone and pin."""

import numpy as np

from rota.core.values import UNOWNED, Bools, Codes, Kind, Snapshot, Worker

ANY_WORKER: Kind = ((), None)


def matches(worker: Worker, kind: Kind) -> bool:
    """Return whether `worker` carries each label that `kind` requires (`zone` is one) and is the pinned worker if there
    is one."""
    requires, pin = kind
    return (pin is None or pin == worker.id) and all(_read_label(worker, name) == value for name, value in requires)


def _read_label(worker: Worker, name: str) -> str | None:
    if name == "zone" and worker.zone is not None:
        return worker.zone
    return worker.labels.get(name)


def find_matches(snapshot: Snapshot) -> Bools:
    """Return the table kinds x workers of `matches`. The state of a worker does not count."""
    table = np.ones((len(snapshot.kinds), len(snapshot.workers)), np.bool_)
    for k, kind in enumerate(snapshot.kinds):
        if kind != ANY_WORKER:
            table[k] = [matches(worker, kind) for worker in snapshot.workers]
    return table


def find_valid_owners(snapshot: Snapshot, match: Bools) -> Codes:
    """Return the owner column with UNOWNED for each partition whose owner is gone, is draining, or does not match."""
    owner = snapshot.owner
    if not snapshot.workers:
        return np.full(len(owner), UNOWNED, np.int32)
    if snapshot.team.plain and match.all():
        return owner if int(owner.min(initial=0)) >= UNOWNED else np.maximum(owner, np.int32(UNOWNED))
    owner_index = np.maximum(owner, 0)
    keeps = (owner >= 0) & ~snapshot.team.draining[owner_index] & match[snapshot.kind, owner_index]
    return np.where(keeps, owner, np.int32(UNOWNED))
