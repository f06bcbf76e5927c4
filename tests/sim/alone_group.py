"""A group in memory whose workers decide alone, and its agents, stepped by hand."""

import itertools

from rota.coordination.alone import found_own_records
from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.group.agent import Agent
from simulator.memory_store import MemoryServer

Said = list[tuple[str, dict[str, object]]]


def found_group(protocol: str = "claim", count: int = 2) -> tuple[MemoryServer, GroupState]:
    """A group with so many partitions."""
    server = MemoryServer()
    tree = GroupState(server.connect(), "g")
    tree.found(protocol=protocol)
    tree.grow("p", [str(n) for n in range(count)])
    found_own_records(tree, tree.ids())
    return server, tree


def start(server: MemoryServer, worker: str, said: Said | None = None) -> Agent:
    """An agent, on whose clock 50 ms pass between any two reads of it."""
    ticks = itertools.count()

    def say(word: str, /, **facts: object) -> None:
        if said is not None:
            said.append((word, facts))

    tree = GroupState(server.connect(), "g")
    return Agent(
        tree,
        worker,
        Live(),
        say,
        max_shutdown=120.0,
        session_timeout=10.0,
        clock=lambda: next(ticks) * 0.05,
        draw=lambda: 0.5,
    )


def rounds(agent: Agent, count: int = 3) -> str:
    """So many rounds; the incarnation."""
    for _ in range(count):
        for _ in agent.cycle():
            pass
    return agent.state.incarnation or ""
