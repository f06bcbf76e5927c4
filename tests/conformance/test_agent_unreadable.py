"""An agent among records that cannot be read stands still, and goes on when they are mended."""

from rota.agent import Agent
from rota.coordination.memory import MemoryServer
from rota.coordination.records import Head, Live, Own, Slot, Slots, encode
from rota.coordination.tree import Tree


def test_a_meta_that_cannot_be_read_ends_no_agent() -> None:
    server, now, said = MemoryServer(), [0.0], list[str]()
    tree = Tree(server.connect(), "g")
    tree.found()
    paths, store = tree.paths, tree.store

    def say(word: str, /, **_: object) -> None:
        said.append(word)

    agent = Agent(
        Tree(server.connect(), "g"), "w1", Live(), say, max_shutdown=120, session_timeout=10, clock=lambda: now[0]
    )

    def cycle() -> None:
        now[0] += 1
        for _ in agent.cycle():
            pass

    cycle()
    store.create(paths.own("p-a"), encode(Own()))
    store.create(paths.assign("w1"), encode(Slots(slots=(Slot(epoch=1, partitions=frozenset({"p-a"})),))))
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
