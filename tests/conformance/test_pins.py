"""A pin takes no partition from its owner without an heir."""

from collections.abc import Callable

import pytest

from rota.coordination import membership, overrides
from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.coordination.snapshot import explain_pin
from rota.group.rebalance import rebalance
from tests.claiming import claim_one

P = "p:0"
CAUSES: dict[str, Callable[[GroupState], object]] = {
    "": lambda tree: overrides.override(tree, "w2", max_partitions=1),  # the others make room
    "is draining": lambda tree: overrides.drain(tree, "w2"),
    "is cordoned": lambda tree: overrides.cordon(tree, "w2"),
    "is at its cap": lambda tree: overrides.override(tree, "w2", max_partitions=0),
    "lacks gpu=yes": lambda tree: tree.grow("p", ["0"], {"gpu": "yes"}),
    "is not live": lambda tree: None,
}


@pytest.mark.parametrize("why", CAUSES)
def test_a_worker_that_may_not_have_a_partition_is_reported_with_the_cause(tree: GroupState, why: str) -> None:
    tree.grow("p", ["0", "1", "2"])
    owner = membership.join(tree, "w1", Live(labels={"gpu": "yes"}))
    if why != "is not live":
        membership.join(tree, "w2", Live())
    rebalance(tree, "r")
    overrides.pin(tree, P, "w1")
    CAUSES[why](tree)
    assert explain_pin(tree, P, "w2") == why
    assert explain_pin(tree, P, "w1") == ""
    overrides.cordon(tree, "w1")
    assert explain_pin(tree, P, "w1") == "is cordoned"
    claim_one(tree, owner, P, tree.owned()[P].version)
    assert explain_pin(tree, P, "w1") == "", "a cordoned worker keeps its partitions"


def test_a_cap_that_other_pins_fill_is_full(tree: GroupState) -> None:
    tree.grow("p", ["0", "1"])
    membership.join(tree, "w1", Live(max_partitions=1))
    overrides.pin(tree, "p:1", "w1")
    assert explain_pin(tree, P, "w1") == "is at its cap"
    assert explain_pin(tree, "p:1", "w1") == ""
