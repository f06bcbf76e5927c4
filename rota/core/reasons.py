"""The moves of a plan and its unassigned partitions, each created on demand with a reason in plain words.

Law: the reason of an unavoidable move states what forced it. The reason of a voluntary move states what it improves.
"""

from collections.abc import Callable, Mapping, Sequence

from rota.core.columns import count_per_worker
from rota.core.constraints import matches
from rota.core.values import (
    UNLIMITED,
    UNOWNED,
    Bools,
    Codes,
    Ints,
    Kind,
    LazySequence,
    Move,
    Snapshot,
    Unassigned,
    Worker,
)


class LazyMoves(LazySequence[Move]):
    """The moves of a plan in order. `explain` explains a voluntary move, given the index of its partition."""

    __slots__ = ("explain", "indices", "must", "snapshot", "target")

    def __init__(
        self, snapshot: Snapshot, target: Codes, indices: Ints, must: Bools, explain: Callable[[int], str] | None
    ) -> None:
        self.snapshot, self.target, self.indices, self.must, self.explain = snapshot, target, indices, must, explain

    def __len__(self) -> int:
        return len(self.indices)

    def at(self, index: int) -> Move:
        """Return the move at this place in the order."""
        i, snapshot = int(self.indices[index]), self.snapshot
        taker = snapshot.workers[int(self.target[i])].id
        giver = snapshot.name(int(snapshot.owner[i]))
        return Move(snapshot.partition_ids[i], giver, taker, float(snapshot.load[i]), self._explain(i, taker))

    def _explain(self, i: int, taker: str) -> str:
        snapshot, code = self.snapshot, int(self.snapshot.owner[i])
        if code == UNOWNED:
            return "it had no owner"
        if code < 0:
            return f"{snapshot.name(code)} left"
        giver, (requires, pin) = snapshot.workers[code], snapshot.kinds[snapshot.kind[i]]
        if giver.state == "draining":
            return f"{giver.id} is draining"
        if not matches(giver, (requires, pin)):
            return f"pinned to {taker}" if pin is not None else f"{giver.id} lacks {_format_labels(requires)}"
        if self.must[i] and giver.max_partitions is not None:
            over = int(count_per_worker(snapshot.owner, len(snapshot.workers))[code]) - giver.max_partitions
            cap = f"its cap of {giver.max_partitions}"
            return f"{giver.id} was {over} over {cap}" if over > 0 else f"{giver.id} made room under {cap}"
        return self.explain(i) if self.explain else f"{taker} is where it belongs"


class LazyUnassigned(LazySequence[Unassigned]):
    """The partitions that get no worker now, ordered by id.

    `waits` maps the code of a gone worker to a text, until when it may return. `wanted` is the target before the policy.
    """

    __slots__ = ("indices", "snapshot", "waits", "wanted")

    def __init__(self, snapshot: Snapshot, indices: Ints, waits: Mapping[int, str], wanted: Codes) -> None:
        self.snapshot, self.indices, self.waits, self.wanted = snapshot, indices, waits, wanted

    def __len__(self) -> int:
        return len(self.indices)

    def at(self, index: int) -> Unassigned:
        """Return the unassigned partition at this place."""
        i, snapshot = int(self.indices[index]), self.snapshot
        owner = int(snapshot.owner[i])
        taker = snapshot.name(int(self.wanted[i]))
        held = f"{taker} has no room until voluntary moves go on" if taker else ""
        kind = snapshot.kinds[snapshot.kind[i]]
        why = explain_unplaceable(snapshot.workers, kind) or "the assignor left it out"
        reason = self.waits.get(owner) or held or why
        return Unassigned(snapshot.partition_ids[i], snapshot.name(owner), reason)


def explain_unplaceable(workers: Sequence[Worker], kind: Kind, held: Mapping[str, int] | None = None) -> str:
    """Return why no worker may take a partition of this kind; empty if one may. `held` is the number of partitions of
    each worker. Without `held`, every worker that has a cap counts as full."""
    requires, pin = kind
    if not workers:
        return "there is no worker"
    if pin is not None:
        pinned = next((w for w in workers if w.id == pin), None)
        why = explain_refusal(pinned, kind, held) if pinned else "is not among the workers"
        return why and f"pinned to {pin}, which {why}"
    able = [w for w in workers if matches(w, kind)]
    if not able:
        return f"no worker has {_format_labels(requires)}"
    active = [w for w in able if w.state == "active"]
    if not active:
        states = " or ".join(sorted({w.state for w in able}))
        return f"every worker that could take it is {states}"
    return "every worker that may hold it is at its cap" if all(_is_full(w, held) for w in active) else ""


def explain_refusal(worker: Worker, kind: Kind, held: Mapping[str, int] | None) -> str:
    """Return why this worker may not take a partition of this kind, in words that follow the worker's name; empty if it
    may. `held` is as in `explain_unplaceable`."""
    if not matches(worker, kind):
        return f"lacks {_format_labels(kind[0])}"
    if worker.state != "active":
        return f"is {worker.state}"
    return "is at its cap" if _is_full(worker, held) else ""


def _is_full(worker: Worker, held: Mapping[str, int] | None) -> bool:
    cap = worker.max_partitions
    return cap is not None and cap < UNLIMITED and (held is None or held.get(worker.id, 0) >= cap)


def _format_labels(requires: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name}={value}" for name, value in requires)
