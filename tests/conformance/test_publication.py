"""Laws of publication: one plan, made current at once, by the one controller there is."""

import random
from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from rota.coordination import membership
from rota.coordination.group_state import GroupState
from rota.coordination.publication import (
    Audit,
    Publication,
    Published,
    publication_of,
    publish,
    take_control,
)
from rota.coordination.records import Live
from rota.coordination.snapshot import read_basis, read_snapshot
from rota.coordination.store import Node, Op
from rota.core import plan
from rota.errors import AssignmentError, Conflict
from simulator.memory_store import MemoryServer, MemoryStore
from tests.ablations import NO_CONTROL, Change, change_store
from tests.conformance.publishers import Mortal, count_damage, found_group, parts, read_targets
from tests.conformance.worlds import World


def test_it_makes_a_plan_current(world: World, tree: GroupState) -> None:
    workers = {w: GroupState(world.connect(), tree.group) for w in ("w1", "w2")}
    for name, agent in workers.items():
        membership.join(agent, name, Live())
    assert tree.grow("flights", ["AA", "UA", "DL"]) == ("AA", "DL", "UA")
    look = read_snapshot(tree)
    assert look.basis.moved
    assert look.basis.joined == ("w1", "w2")
    done = publish(tree, take_control(tree), publication_of(look, plan(look.snapshot), "w1, w2 joined.", "run-1"))
    assert (done.epoch, done.published, done.changed) == (1, True, ("w1", "w2"))
    held = {w: agent.target(w) for w, agent in workers.items()}
    assert {w: t.epoch for w, t in held.items() if t} == {"w1": 1, "w2": 1}
    assert sorted(p for t in held.values() if t for p in t.partitions) == ["flights:AA", "flights:DL", "flights:UA"]
    assert {p: v.incarnation for p, v in tree.owned().items()} == dict.fromkeys(
        ("flights:AA", "flights:DL", "flights:UA")
    )
    audit = tree.epochs()[-1]
    assert audit.sentence == "Epoch 1: w1, w2 joined."
    assert (audit.epoch, audit.joined, audit.run_id, audit.moved) == (1, ("w1", "w2"), "run-1", 3)
    assert {m.partition for m in audit.moves} == {"flights:AA", "flights:DL", "flights:UA"}
    assert not read_basis(tree).moved


def test_a_round_that_moves_nothing_is_no_epoch_but_is_noted(tree: GroupState) -> None:
    term = take_control(tree)
    first = publish(tree, term, Publication({"w1": parts("p")}, basis="a"))
    again = publish(tree, first.term, Publication({"w1": parts("p")}, basis="b", due=5.0, memory={"hits": 2}))
    assert (again.epoch, again.published, again.changed) == (1, False, ())
    head = tree.head()
    assert (head.record.epoch, head.record.basis, head.record.due) == (1, "b", 5.0)
    assert tree.controller().record.memory == {"hits": 2}
    before = head.version
    same = publish(tree, again.term, Publication({"w1": parts("p")}, basis="b", due=5.0, memory={"hits": 2}))
    assert tree.head().version == before, "nothing new to note, nothing written"
    assert publish(tree, same.term, Publication({"w1": frozenset()})).epoch == 2


def test_the_audit_names_what_no_target_names_any_more(tree: GroupState) -> None:
    """The history showed a partition that had left as its last owner's for ever."""
    term = take_control(tree)
    term = publish(tree, term, Publication({"w1": parts("pq"), "w2": parts("r")})).term
    term = publish(tree, term, Publication({"w1": parts("p"), "w2": parts("q")})).term
    publish(tree, term, Publication({"w1": parts("pr")}))
    assert [epoch.dropped for epoch in tree.epochs()] == [(), (*parts("r"),), (*parts("q"),)]


def test_it_costs_one_write_for_each_changed_worker_and_one_flip(memory: MemoryServer) -> None:
    store = Mortal(memory)
    tree = GroupState(store, "default")
    tree.found()
    everything = {f"w{i}": frozenset(f"s:{j}" for j in range(i * 20, i * 20 + 20)) for i in range(50)}
    done = publish(tree, take_control(tree), Publication(everything))
    moved = everything | {"w0": everything["w0"] - {"s:0"}, "w1": everything["w1"] | {"s:0"}}
    store.multis = store.writes = 0
    done = publish(tree, done.term, Publication(moved))
    assert done.changed == ("w0", "w1")
    assert store.writes == 2 + 2, "two workers, the head, the controller's memory"
    assert store.multis == 3, "the slots, the time for the audit, the flip"


def test_a_worker_that_is_gone_and_returns_finds_no_old_assignment(tree: GroupState) -> None:
    done = publish(tree, take_control(tree), Publication({"w1": parts("a"), "w2": parts("b")}))
    done = publish(tree, done.term, Publication({"w1": parts("ab")}))
    assert done.changed == ("w1", "w2")
    assert (back := tree.target("w2")) is not None
    assert (back.epoch, back.previous, back.partitions) == (2, 1, frozenset())
    assert tree.target("never-heard-of") is None


def test_a_plan_that_names_a_partition_twice_is_refused() -> None:
    with pytest.raises(AssignmentError, match="two targets"):
        Publication({"w1": parts("ab"), "w2": parts("bc")})


def test_a_hundred_thousand_partitions_fit_and_one_more_is_refused(memory: MemoryServer) -> None:
    tree = found_group(memory)
    chance = random.Random(1)
    ids = [f"orders:customer_{chance.getrandbits(32):08x}" for _ in range(100_000)]
    ids = sorted({*ids, *(f"orders:more-{i}" for i in range(100_000 - len(set(ids))))})
    term = take_control(tree)
    done = publish(tree, term, Publication({"w1": frozenset(ids)}))
    other = frozenset(ids[:99_000])
    publish(tree, done.term, Publication({"w1": other}))
    assert (node := tree.store.get(tree.paths.assign("w1"))) is not None
    assert len(node.data) < 700_000, "two slots of 100,000 scattered ids"
    assert (target := tree.target("w1")) is not None
    assert target.partitions == other
    with pytest.raises(AssignmentError, match="above 100000"):
        Publication({"w1": frozenset([*ids, "one-more"])})


def test_only_the_last_two_hundred_audits_stay(memory: MemoryServer) -> None:
    tree = found_group(memory)
    done = Published(0, False, take_control(tree), ())
    for number in range(205):
        done = publish(tree, done.term, Publication({f"w{number % 2}": parts("p")}, audit=Audit(f"{number}.")))
    assert [e.epoch for e in tree.epochs()] == list(range(6, 206))
    assert [e.epoch for e in tree.epochs(3)] == [203, 204, 205]


def test_a_deposed_controller_is_refused(world: World, tree: GroupState) -> None:
    old = take_control(tree)
    rival = GroupState(world.connect(), tree.group)
    new = take_control(rival)
    assert new.number == old.number + 1
    with pytest.raises(Conflict) as refused:
        publish(tree, old, Publication({"w1": parts("p")}))
    assert refused.value.path == tree.paths.controller
    done = publish(rival, new, Publication({"w2": parts("p")}))
    with pytest.raises(Conflict):
        publish(tree, old, Publication({"w2": parts("p")}, basis="also without a change"))
    assert done.epoch == 1
    assert read_targets(tree) == {"w2": parts("p")}


def depose_midway(*changes: Change) -> int:
    """A controller is deposed after its slots and before its flip; its rival changes another worker. The damage."""
    server = MemoryServer(clock=lambda: 0.0)
    tree = found_group(server)
    first = publish(tree, take_control(tree), Publication({"w1": parts("ab"), "w2": parts("cd")}))
    rival = GroupState(server.connect(), "default")
    final = {"w1": parts("abc"), "w2": parts("d")}

    overtaken: list[bool] = []

    class Overtaken(MemoryStore):
        """Its rival publishes a whole epoch just before this one's flip."""

        def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
            if any(op.path.endswith("/head") for op in ops) and not overtaken:
                overtaken.append(True)
                publish(rival, take_control(rival), Publication(final))
            return super().multi(ops)

    late = GroupState(change_store(Overtaken(server), *changes), "default")
    with pytest.raises(Conflict) if not changes else nullcontext():
        publish(late, first.term, Publication({"w1": parts("a"), "w2": parts("bcd")}))
    return count_damage(tree, final)


def test_without_the_controllers_check_a_deposed_one_does_damage() -> None:
    assert depose_midway() == 0
    assert depose_midway(*NO_CONTROL) > 0


def test_an_undecodable_slot_is_mended_by_the_next_publication(tree: GroupState) -> None:
    done = publish(tree, take_control(tree), Publication({"w1": parts("a"), "w2": parts("b")}))
    tree.store.set(tree.paths.assign("w1"), b"rubbish", -1)
    assert set(tree.targets()[1]) == {"w2"}
    assert tree.paths.assign("w1") in tree.unreadable
    done = publish(tree, done.term, Publication({"w1": parts("a"), "w2": parts("b")}))
    assert done.changed == ("w1",)
    assert read_targets(tree) == {"w1": parts("a"), "w2": parts("b")}
    assert not tree.unreadable
