"""What an observation of a group reports of records: nothing of other pipelines, and nothing of records that are gone."""

from collections.abc import Callable

import pytest

from rota.coordination.group_state import GroupState
from rota.coordination.layout import Paths
from rota.coordination.records import Own, Slot, Slots, encode
from rota.face.health import make_seen, read_records
from rota.face.needs import find_needs
from simulator.memory_store import MemoryServer


def test_a_look_at_one_pipeline_reports_no_records_of_another() -> None:
    """Each pipeline of the group turned red by one record, and two alerts came for it."""
    tree = GroupState(MemoryServer().connect(), "default")
    tree.found()
    for name in ("p", "q"):
        tree.grow(name, ["a"])
    for path in (tree.paths.parking("q:a"), tree.paths.parking("gone:a")):
        tree.store.create(path, b"no record")

    def find(*pipelines: str) -> list[tuple[str, str]]:
        facts, basis = read_records(tree, pipelines or None)
        found, _ = find_needs(make_seen(tree, facts, basis, []))
        return sorted((need.kind, need.name) for need in found if need.cause == "record")

    unowned = ("record", tree.paths.parking("gone:a"))
    assert find("p") == [unowned]
    assert find("q") == find() == [("partition", "q:a"), unowned]


def test_a_look_knows_when_targets_were_written() -> None:
    clock = [1000.0]
    tree = GroupState(MemoryServer(clock=lambda: clock[0]).connect(), "default")
    tree.found()
    tree.grow("p", ["a"])
    tree.store.create(tree.paths.own("p:a"), encode(Own()))
    clock[0] = 1060.0
    tree.store.create(tree.paths.assign("w1"), encode(Slots(slots=(Slot(epoch=0, partitions=frozenset()),))))
    clock[0] = 1300.0
    facts, basis = read_records(tree)
    seen = make_seen(tree, facts, basis, [])
    assert (seen.now, facts.written) == (1300.0, {"w1": 1060.0})


FOLDERS: dict[str, tuple[Callable[[Paths], str], Callable[[GroupState], object]]] = {
    "parked": (lambda at: at.parking("p:a"), lambda tree: tree.parked()),
    "own": (lambda at: at.own("p:a"), lambda tree: tree.owned(["p:a"])),
    "checkpoint": (lambda at: at.checkpoint("p:a"), lambda tree: tree.checkpoints(["p:a"])),
    "live": (lambda at: at.live("w1@0000000000000001"), lambda tree: tree.live()),
    "run": (lambda at: f"{at.runs}/w1@0000000000000001@r@0000000000000002", lambda tree: tree.runs()),
    "worker": (lambda at: f"{at.workers}/w1", lambda tree: tree.worker_overrides()),
    "assign": (lambda at: at.assign("w1"), lambda tree: tree.assigns()),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_record_that_was_removed_is_not_unreadable_any_more(kind: str) -> None:
    """Processes that look repeatedly reported it until they ended: `rota status --watch`, and each worker."""
    find_path, read = FOLDERS[kind]
    tree = GroupState(MemoryServer().connect(), "default")
    tree.found()
    path = find_path(tree.paths)
    tree.store.create(path, b"no record")
    read(tree)
    assert list(tree.unreadable) == [path]
    tree.store.delete(path)
    read(tree)
    assert not tree.unreadable
