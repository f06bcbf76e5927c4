"""Values that were read are kept while they are current, and no longer."""

from collections.abc import Callable

import pytest

from rota.coordination.readings import Readings
from rota.coordination.store import Store
from rota.errors import Unavailable
from simulator.memory_store import MemoryServer


@pytest.fixture
def store(memory: MemoryServer) -> Store:
    """A store with a node."""
    store = memory.connect()
    store.create("/a", b"0")
    return store


def read_again(store: Store, meanwhile: Callable[[int], None]) -> list[tuple[bytes, bytes]]:
    """What is found and what is there, at four looks; `meanwhile` is called with the number of each, after it was read."""
    readings, seen = Readings(store), []
    for at in range(4):

        def read(at: int = at) -> bytes:
            node = store.get("/a")
            assert node is not None
            meanwhile(at)
            return node.data

        readings.refresh()
        found = readings.keep("a", read)
        there = store.get("/a")
        assert there is not None
        seen.append((found, there.data))
    return seen


def test_what_changed_while_it_was_read_is_found_by_the_next_look(store: Store, memory: MemoryServer) -> None:
    other = memory.connect()

    def change(at: int) -> None:
        if at < 2:
            other.set("/a", f"{at + 1}".encode(), -1)

    assert read_again(store, change) == [(b"0", b"1"), (b"1", b"2"), (b"2", b"2"), (b"2", b"2")]


def test_with_a_stamp_of_afterwards_it_would_be_missed_for_ever(
    store: Store, memory: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, stamp = memory.connect(), store.stamp
    session, zxid = stamp()
    ahead = (session, zxid + 1)  # the stamp that a question after the first read returns
    monkeypatch.setattr(store, "stamp", lambda: max(stamp(), ahead))

    def change(_: int) -> None:
        other.set("/a", b"1", -1)

    assert read_again(store, change) == [(b"0", b"1")] * 4


def test_what_is_read_in_vain_or_does_not_last_or_is_about_something_else_is_read_again(store: Store) -> None:
    readings, found = Readings(store), iter(range(10))

    def refuse() -> int:
        raise Unavailable("gone", hosts="h:1")

    def count(about: object = None, lasts: bool = True) -> int:
        readings.refresh()
        return readings.keep("n", lambda: next(found), about=about, lasts=lambda _: lasts)

    assert [count(), count(), count("x"), count("x"), count(lasts=False), count(lasts=False)] == [0, 0, 1, 1, 2, 3]
    with pytest.raises(Unavailable):
        readings.keep("n", refuse)
    assert [count(), count()] == [4, 4]
