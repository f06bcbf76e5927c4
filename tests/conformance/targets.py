"""Targets of a group with a few partitions, published without a controller, and what its workers own."""

from collections.abc import Iterable, Mapping, Sequence

from rota.coordination.group_state import GroupState
from rota.coordination.records import Head, Own, Slot, Slots, encode
from rota.coordination.store import Create, Op, Set
from tests.waiting import wait_until

PARTITIONS = ("s:1", "s:2")
AT_ONCE = 400  # own records that one multi creates


def found_with(tree: GroupState, partitions: Sequence[str] = PARTITIONS) -> GroupState:
    """Founds the group with these free partitions."""
    tree.found()
    for start in range(0, len(partitions), AT_ONCE):
        some = partitions[start : start + AT_ONCE]
        tree.store.multi([Create(tree.paths.own(p), encode(Own())) for p in some])
    return tree


def aim(tree: GroupState, whole: Mapping[str, Iterable[str]] | None = None, **targets: str) -> None:
    """Publish the next epoch: worker=partitions, by the last letter of each, or by whole names."""
    head = tree.head()
    epoch = head.record.epoch + 1
    ops: list[Op] = []
    named = {worker: [f"s:{letter}" for letter in letters] for worker, letters in targets.items()}
    for worker, names in (whole or named).items():
        seen = tree.assigns().get(worker)
        old = seen.record.effective(head.record.epoch) if seen else None
        slot = Slot(epoch=epoch, partitions=frozenset(names))
        data, path = encode(Slots(slots=(*([old] if old else []), slot))), tree.paths.assign(worker)
        ops.append(Set(path, data, -1) if seen else Create(path, data))
    tree.store.multi([*ops, Set(tree.paths.head, encode(Head(epoch=epoch)), head.version)])


def owners(tree: GroupState) -> dict[str, str]:
    """Partition -> worker that owns it, for those with an owner."""
    return {p: v.incarnation.rpartition("@")[0] for p, v in tree.owned().items() if v.incarnation}


def incarnation(tree: GroupState, worker: str) -> str | None:
    """The newest live incarnation of a worker."""
    view = tree.newest(tree.live()).get(worker)
    return view.incarnation if view else None


def wait_until_owned(tree: GroupState, **wanted: str) -> None:
    """Wait until each worker owns exactly these, by the last letter of each."""
    expected = {f"s:{letter}": worker for worker, letters in wanted.items() for letter in letters}
    wait_until(lambda: owners(tree) == expected)
