"""An agent waits while a record that it needs cannot be read, and continues after the repair."""

import pytest

from rota.coordination.group_state import GroupState
from rota.coordination.overrides import override
from rota.coordination.records import Head, Live, Own, Slot, Slots, encode
from rota.group.agent import Agent
from rota.group.rebalance import rebalance
from simulator.memory_store import MemoryServer

pytestmark = pytest.mark.fast


def test_a_meta_that_cannot_be_read_ends_no_agent() -> None:
    server, now, said = MemoryServer(), [0.0], list[str]()
    tree = GroupState(server.connect(), "g")
    tree.found()
    paths, store = tree.paths, tree.store

    def say(word: str, /, **_: object) -> None:
        said.append(word)

    agent = Agent(
        GroupState(server.connect(), "g"), "w1", Live(), say, max_shutdown=120, session_timeout=10, clock=lambda: now[0]
    )

    def cycle() -> None:
        now[0] += 1
        for _ in agent.cycle():
            pass

    cycle()
    store.create(paths.own("p:a"), encode(Own()))
    store.create(paths.assign("w1"), encode(Slots(slots=(Slot(epoch=1, partitions=frozenset({"p:a"})),))))
    tree.update(paths.head, Head, lambda _: Head(epoch=1))
    whole = store.get(paths.meta)
    assert whole is not None
    store.set(paths.meta, b"{", -1)
    cycle()
    cycle()
    assert said == ["joined", "unreadable"]
    store.set(paths.meta, whole.data, -1)
    cycle()
    cycle()
    assert said[2:] == ["claimed"]
    store.set(paths.meta, b"{", -1)
    cycle()
    agent.leave()
    now[0] += 120
    cycle()
    assert agent.done is not None
    assert not agent.done.clean


def test_a_head_that_cannot_be_read_is_said_and_moves_nothing() -> None:
    server, said = MemoryServer(), list[tuple[str, object]]()
    tree = GroupState(server.connect(), "g")
    tree.found()
    tree.grow("p", "a")
    agent = Agent(
        GroupState(server.connect(), "g"),
        "w1",
        Live(),
        lambda word, /, **facts: said.append((word, facts.get("path"))),
        max_shutdown=120,
        session_timeout=10,
    )

    def cycle() -> None:
        for _ in agent.cycle():
            pass

    cycle()
    rebalance(tree, "r1")
    cycle()
    tree.store.set(tree.paths.head, b"{", -1)
    cycle()
    cycle()
    assert said[1:] == [("claimed", None), ("unreadable", tree.paths.head)]
    assert tree.owned()["p:a"].incarnation == agent.state.incarnation


def test_an_override_that_cannot_be_read_strands_nothing_after_a_reconnect() -> None:
    """The next life of the worker claims what its target still names, and nothing new."""
    server = MemoryServer()
    tree = GroupState(server.connect(), "g")
    tree.found()
    tree.grow("p", "abcd")
    stores = {w: server.connect() for w in ("w1", "w2")}
    agents = [
        Agent(GroupState(store, "g"), w, Live(), lambda *_, **__: None, max_shutdown=120, session_timeout=10)
        for w, store in stores.items()
    ]

    def spin() -> None:
        for agent in agents * 4:
            for _ in agent.cycle():
                pass

    def held() -> list[tuple[str | None, int]]:
        """Of each live incarnation, how many it owns."""
        owners = [view.incarnation for view in tree.owned().values()]
        return sorted((live.worker, owners.count(live.incarnation)) for live in tree.live())

    spin()
    rebalance(tree, "r1")
    spin()
    override(tree, "w1", capacity=1.0)
    tree.store.set(tree.paths.worker("w1"), b"{", -1)
    server.expire(stores["w1"].session)
    tree.grow("p", "ef")
    spin()
    rebalance(tree, "r2")
    spin()
    assert held() == [("w1", 2), ("w2", 4)]
