"""Parked partitions."""

from rota.coordination.parking import is_waiting, park, unpark
from simulator.memory_store import MemoryServer
from tests.conformance.balanced_group import Group


def test_a_parked_partition_waits_longer_after_each_failure_of_the_same_offset() -> None:
    time = [100.0]
    tree = Group(MemoryServer(clock=lambda: time[0])).tree
    waits = [park(tree, "flights:AA", "bad", retry_after=5.0, offset=3) for _ in range(3)]
    assert [(p.failures, p.retry_at) for p in waits] == [(1, 105.0), (2, 110.0), (3, 120.0)]
    assert park(tree, "flights:AA", "bad", retry_after=5.0, offset=4).failures == 1
    assert park(tree, "flights:UA", "changed").retry_at is None
    assert set(tree.parked()) == {"flights:AA", "flights:UA"}
    parked = waits[2]
    assert [is_waiting(parked, now) for now in (119.9, 120.0)] == [True, False]
    assert is_waiting(tree.parked()["flights:UA"].record, 1e12)
    assert unpark(tree, "flights:AA")
    assert not unpark(tree, "flights:AA")
