"""What an operator sets overrides what a worker announces."""

import pytest

from rota.coordination import overrides
from rota.coordination.snapshot import read_basis
from rota.errors import ConfigError
from tests.conformance.balanced_group import Group


def test_overrides_overrule_what_a_worker_announces(balanced: Group) -> None:
    balanced.join("w3", capacity=2.0, labels={"disk": "hdd", "rack": "1"}, max_partitions=9, zone="a")
    worker = balanced.worker("w3")
    assert (worker.capacity, worker.labels, worker.max_partitions, worker.state) == (  # type: ignore[attr-defined]
        2.0,
        {"disk": "hdd", "rack": "1"},
        9,
        "active",
    )
    overrides.override(balanced.tree, "w3", capacity=4.0, labels={"disk": "ssd"}, max_partitions=0)
    overrides.cordon(balanced.tree, "w3")
    worker = balanced.worker("w3")
    assert (worker.capacity, worker.labels, worker.max_partitions, worker.state) == (  # type: ignore[attr-defined]
        4.0,
        {"disk": "ssd", "rack": "1"},
        0,
        "cordoned",
    )
    overrides.drain(balanced.tree, "w3")
    assert balanced.worker("w3").state == "draining"  # type: ignore[attr-defined]
    overrides.uncordon(balanced.tree, "w3")
    assert balanced.worker("w3").state == "active"  # type: ignore[attr-defined]


def test_a_drained_worker_hands_over_and_a_cordoned_one_keeps(balanced: Group) -> None:
    overrides.cordon(balanced.tree, "w2")
    balanced.tree.grow("flights", ["VX", "WN"])
    balanced.rebalance()
    assert balanced.held() == {"w1": 4, "w2": 2}
    overrides.drain(balanced.tree, "w2")
    balanced.rebalance()
    assert balanced.held() == {"w1": 6, "w2": 0}


def test_pause_is_an_override_of_the_group(balanced: Group) -> None:
    overrides.pause(balanced.tree)
    assert read_basis(balanced.tree).overrides.paused
    overrides.resume(balanced.tree)
    assert not read_basis(balanced.tree).overrides.paused


def test_an_override_of_an_unknown_name_lists_the_known_ones(balanced: Group) -> None:
    with pytest.raises(ConfigError, match=r"Unknown worker 'w9'. Known: w1, w2"):
        overrides.cordon(balanced.tree, "w9")
    with pytest.raises(ConfigError, match=r"Unknown partition 'flights:XX'. Known: flights:AA, "):
        overrides.pin(balanced.tree, "flights:XX", "w1")
    with pytest.raises(ConfigError, match=r"Bad override: .*capacity"):
        overrides.override(balanced.tree, "w1", capacity=-1.0)
    assert balanced.tree.worker_overrides() == {}


def test_the_cap_is_what_people_override_else_what_is_announced(balanced: Group) -> None:
    tree = balanced.tree
    assert [overrides.cap(tree, "w1", announced) for announced in (None, 7)] == [None, 7]
    overrides.override(tree, "w1", max_partitions=3)
    assert [overrides.cap(tree, "w1", announced) for announced in (None, 7)] == [3, 3]
    tree.store.set(tree.paths.worker("w1"), b"\xff", -1)
    assert [overrides.cap(tree, "w1", announced) for announced in (None, 7)] == [None, 7], (
        "it may claim its target again"
    )
