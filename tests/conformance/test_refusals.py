"""Refused commits are noted."""

import pytest

from rota.coordination.parking import note_refusal
from rota.coordination.records import Refusal
from simulator.memory_store import MemoryStore
from tests.conformance.balanced_group import Group


def test_the_last_two_hundred_refusals_stay(balanced: Group) -> None:
    for token in range(205):
        assert note_refusal(balanced.tree, Refusal(partition="flights:AA", token=token, newer=token + 1))
    ring = balanced.tree.refusals().ring
    assert [r.token for r in ring] == list(range(5, 205))
    assert ring[0].at == 1000.0


def test_a_refusal_waits_for_the_session_of_a_run_that_was_asleep(
    balanced: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = balanced.tree.store
    assert isinstance(store, MemoryStore)
    store.disconnect()

    def wait_active(timeout: float) -> bool:
        store.reconnect()
        return True

    monkeypatch.setattr(store, "wait_active", wait_active)
    assert note_refusal(balanced.tree, Refusal(partition="flights:AA", token=1, newer=2))
    assert [r.token for r in balanced.tree.refusals().ring] == [1]
