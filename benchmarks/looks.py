"""Counts what agents read from ZooKeeper while many runs consume: store calls, nodes and bytes of each look.

    python benchmarks/looks.py [--agents 100] [--runs 20] [--partitions 1000]

The store is in memory. Each agent owns `--partitions` partitions, and `--runs` runs of it share them. The command prints
what one look of an agent reads, and what a look reads while the agent drains one partition.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

import click

from rota.agent import Agent
from rota.coordination import membership
from rota.coordination.group_state import GroupState
from rota.coordination.memory import MemoryServer, MemoryStore
from rota.coordination.publication import Publication, publish, take_control
from rota.coordination.records import Live
from rota.coordination.store import Node


class CountingStore(MemoryStore):
    """A store in memory that counts what is read from it."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.read: Counter[str] = Counter()

    def get_many(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        """Reads the nodes and counts them."""
        nodes = super().get_many(paths)
        runs = [n for p, n in zip(paths, nodes, strict=True) if n is not None and "/runs/" in p]
        self.read += Counter(calls=1, nodes=len(nodes), bytes=sum(len(n.data) for n in nodes if n is not None))
        self.read += Counter(run_nodes=len(runs), run_bytes=sum(len(n.data) for n in runs))
        return nodes

    def children(self, path: str) -> tuple[str, ...]:
        """Lists the names and counts them."""
        names = super().children(path)
        self.read += Counter(calls=1, names=len(names), bytes=sum(map(len, names)))
        return names


def main() -> int:
    """Runs the agents once and prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=1_000)
    asked = parser.parse_args()
    server, now = MemoryServer(lambda: 0.0), [0.0]
    tree = GroupState(server.connect(), "g")
    tree.found()
    held = {
        f"w{a:03}": [f"flights:carrier-{a:03}-{p:04}" for p in range(asked.partitions)] for a in range(asked.agents)
    }
    agents = [
        Agent(
            GroupState(CountingStore(server), "g"),
            worker,
            Live(),
            lambda *_, **__: None,
            max_shutdown=120,
            session_timeout=10,
            clock=lambda: now[0],
        )
        for worker in held
    ]
    first = agents[0]

    def cycle(agent: Agent) -> Counter[str]:
        now[0] += 0.25
        assert isinstance(agent.store, CountingStore)
        agent.store.read.clear()
        for _ in agent.cycle():
            pass
        return agent.store.read

    term = publish(tree, take_control(tree), Publication({w: frozenset(ids) for w, ids in held.items()})).term
    for agent in agents:
        for _ in range(3):
            cycle(agent)
        each = -(-asked.partitions // asked.runs)
        mine = held[agent.worker]
        for r in range(asked.runs):
            membership.register_run(
                GroupState(server.connect(), "g"),
                f"5f0e4b7a-3c1d-4a53-9d1e-{r:012x}",
                agent.state.incarnation or "",
                mine[r * each : (r + 1) * each],
            )
    click.echo(f"{asked.agents} agents with {asked.runs} runs each, {asked.partitions} partitions an agent")
    click.echo(f"a look: {dict(cycle(first))}")
    given = held["w001"] + held["w000"][:1]
    changed = {w: frozenset(ids) for w, ids in held.items()} | {"w000": frozenset(held["w000"][1:])}
    publish(tree, term, Publication(changed | {"w001": frozenset(given)}))
    click.echo(f"a look while one partition drains: {dict(cycle(first))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
