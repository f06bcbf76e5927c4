"""An unreadable record does not count as absent."""

from typing import Any

import pytest

from rota.errors import EnvironmentFailed
from rota.run.consume import DroppedPartition, Event
from rota.run.work import find_work, read_owners
from tests.dataplane.world import World


@pytest.mark.parametrize("kind", ["parking", "checkpoint", "own", "live"])
def test_an_unreadable_record_keeps_its_partition_waiting(world: World, kind: str) -> None:
    """Unreadable means neither "not parked" nor "never consumed" nor "free" nor "without a Spark of its own"."""
    for key in "ab":
        world.rows(key, "0", 1)
    world.give("a", "b")
    path = {
        "parking": world.tree.paths.parking("p:a"),
        "checkpoint": world.tree.paths.checkpoint("p:a"),
        "own": world.tree.paths.own("p:a"),
        "live": world.tree.paths.live(world.incarnation),
    }[kind]
    store = world.tree.store
    store.set(path, b"\xff", -1) if store.get(path) else store.create(path, b"\xff")
    left = {"p:a"} if kind != "live" else {"p:a", "p:b"}
    found = read_owners(world.tree, world.pipeline, ["p:a", "p:b"])
    assert set(found.skipped) == left
    assert all("cannot be read" in why for why in found.skipped.values()), found.skipped
    assert {p for w in find_work(world.tree, world.pipeline, world.ports.source) for p in w.lags} == {
        "p:a",
        "p:b",
    } - left
    seen: list[str | None] = []

    def connect(endpoint: str | None) -> Any:
        seen.append(endpoint)
        raise EnvironmentFailed("no Spark here")

    events: list[Event] = []
    try:
        events = world.run("a", "b", connect=connect)
    except EnvironmentFailed:
        assert kind != "live"
    else:
        assert kind == "live"
        assert {e.partition for e in events if isinstance(e, DroppedPartition)} == left
        assert not seen
