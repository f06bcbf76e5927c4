"""The targets of workers that are gone are removed; those of live workers stay, for the sake of their claims."""

import pytest

from rota.coordination import membership, ownership
from rota.coordination.group_state import GroupState
from rota.coordination.overrides import cordon
from rota.coordination.publication import (
    Publication,
    publish,
    take_control,
)
from rota.coordination.records import Live
from rota.group.rebalance import rebalance
from tests.conformance.publishers import parts, read_targets
from tests.conformance.worlds import World


def list_workers(tree: GroupState) -> set[str]:
    return set(tree.store.children(tree.paths.assigns))


def test_the_targets_of_workers_that_are_gone_do_not_pile_up(world: World, group: str) -> None:
    """Ids default to host names, and each pod has another: 100,000 empty targets made each look 13 s."""
    tree = GroupState(world.connect(), group)
    tree.found()
    tree.grow("p", [f"k{i}" for i in range(6)])
    for pod in range(12):
        with world.connect() as store:
            membership.join(GroupState(store, group), f"pod-{pod}", Live())
            rebalance(tree, "r")
            assert read_targets(tree) == {f"pod-{pod}": frozenset(f"p:k{i}" for i in range(6))}
        assert len(list_workers(tree)) <= 2
    cordon(tree, "pod-11")
    with world.connect() as store:
        membership.join(GroupState(store, group), "pod-3", Live())  # one that comes back
        rebalance(tree, "r")
        target = tree.target("pod-3")
        assert target is not None
        assert len(target.partitions) == 6
    rebalance(tree, "r")
    assert set(tree.worker_overrides()) == {"pod-11"}, "the overrides of a worker stay"


@pytest.mark.parametrize(("seen_live", "wrong"), [(True, 0), (False, 1)])
def test_a_worker_that_is_live_keeps_its_node_for_the_sake_of_its_claims(
    world: World, group: str, seen_live: bool, wrong: int
) -> None:
    """w1 read its target and is slow to claim. Were its node removed and made anew meanwhile, it would begin at the very
    version that w1 has read, and w1 would own what its target no longer names. The ablation: a controller that does not
    see the live workers."""
    tree, mine = GroupState(world.connect(), group), GroupState(world.connect(), group)
    tree.found()
    me = membership.join(mine, "w1", Live())
    members = (me,) if seen_live else ()
    term = publish(tree, take_control(tree), Publication({"w1": parts("p")}, members=members)).term
    before = mine.target("w1")
    assert before is not None
    for wanted in ({"w2": "p"}, {"w2": "pq"}, {"w1": "q", "w2": "p"}):
        made = Publication({w: parts(letters) for w, letters in wanted.items()}, members=members)
        term = publish(tree, term, made).term
    claimed = ownership.claim_all(mine, me, {"s:p": 0}, before.version)
    target = tree.target("w1")
    assert target is not None
    assert len(claimed.taken.keys() - target.partitions) == wrong
