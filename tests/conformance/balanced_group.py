"""A group of two workers and four partitions, balanced once, over a store in memory."""

from rota.coordination import membership
from rota.coordination.group_state import GroupState
from rota.coordination.publication import publication_of, publish, take_control
from rota.coordination.records import Live
from rota.coordination.snapshot import read_snapshot
from rota.core import Policy, plan
from simulator.memory_store import MemoryServer

KEYS = ("AA", "B6", "DL", "UA")


class Group:
    """A group of two workers and four partitions, balanced once."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.tree = GroupState(server.connect(), "default")
        self.tree.found()
        self.tree.grow("flights", KEYS)
        self.agents: dict[str, GroupState] = {}
        self.names: dict[str, str] = {}
        for worker in ("w1", "w2"):
            self.join(worker)
        self.rebalance()

    def join(self, worker: str, **live: object) -> None:
        self.agents[worker] = GroupState(self.server.connect(), "default")
        self.names[worker] = membership.join(self.agents[worker], worker, Live(**live))  # type: ignore[arg-type]

    def rebalance(self) -> None:
        read = read_snapshot(self.tree)
        policy = Policy(grace=read.basis.meta.grace)
        publish(self.tree, take_control(self.tree), publication_of(read, plan(read.snapshot, policy=policy)))

    def held(self) -> dict[str, int]:
        return {w: len(t.partitions) for w, t in self.tree.targets()[1].items()}

    def worker(self, name: str) -> object:
        return next(w for w in read_snapshot(self.tree).snapshot.workers if w.id == name)
