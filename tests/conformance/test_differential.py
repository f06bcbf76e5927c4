"""Law: on 5,000 random multis the store in memory answers what the real server answers, and ends with the same tree."""

import random

from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.store import Check, Create, Delete, Node, Op, Set, Store
from rota.errors import Conflict
from simulator.memory_store import MemoryServer

NAMES = ["a", "b", "c", "a/x", "b/y", "a/x/p"]
VERSIONS = [-1, 0, 1, 2, 3]


def random_ops(chance: random.Random, root: str, number: int) -> list[Op]:
    """One to five operations over few nodes, so that most meet what an earlier one left."""
    ops: list[Op] = []
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        path = f"{root}/{chance.choice(NAMES)}"
        kind, version = chance.choice("ccsskd"), chance.choice(VERSIONS)
        if kind == "c":
            ops.append(Create(path, b"%d" % number, ephemeral=chance.random() < 0.3))
        elif kind == "s":
            ops.append(Set(path, b"%d" % number, version))
        else:
            ops.append(Check(path, version) if kind == "k" else Delete(path, version))
    return ops


def answer(store: Store, ops: list[Op], sessions: dict[int, int]) -> object:
    """What the store said, without what only one server can know: its zxids and times."""
    try:
        written = store.multi(ops)
    except Conflict as conflict:
        return conflict.index, conflict.path, conflict.cause, str(conflict)
    assert len({node.mzxid for node in written if node}) <= 1
    return tuple(describe_node(node, sessions) for node in written)


def describe_node(node: Node | None, sessions: dict[int, int]) -> object:
    return node and (node.data, node.version, node.czxid == node.mzxid, sessions.get(node.owner, node.owner))


def test_five_thousand_random_multis(zookeeper: EmbeddedZooKeeper, group: str) -> None:
    seed = 7
    chance = random.Random(seed)
    root = f"/rota/{group}"
    kinds: dict[object, int] = {}
    with connect(zookeeper.hosts) as real, MemoryServer().connect() as memory:
        sessions = {real.session: 1, memory.session: 1}
        for store in (real, memory):
            store.ensure(root)
        for number in range(5_000):
            ops = random_ops(chance, root, number)
            said = [answer(store, ops, sessions) for store in (real, memory)]
            assert said[0] == said[1], f"seed {seed}, multi {number}: {ops}"
            kind = said[0][2] if isinstance(said[0], tuple) and len(said[0]) == 4 and said[0][3] else "written"
            kinds[kind] = kinds.get(kind, 0) + 1
        paths = [f"{root}/{name}" for name in NAMES]
        real_nodes, memory_nodes = real.get_many(paths), memory.get_many(paths)
        assert [describe_node(n, sessions) for n in real_nodes] == [describe_node(n, sessions) for n in memory_nodes]
        assert order([n for n in real_nodes if n]) == order([n for n in memory_nodes if n])
    assert {"missing", "exists", "version", "not_empty", "ephemeral_parent", "written"} <= {str(k) for k in kinds}


def order(nodes: list[Node]) -> list[tuple[int, int]]:
    """The zxids by rank: which write came before which."""
    ranks = {z: i for i, z in enumerate(sorted({z for n in nodes for z in (n.czxid, n.mzxid)}))}
    return [(ranks[n.czxid], ranks[n.mzxid]) for n in nodes]
