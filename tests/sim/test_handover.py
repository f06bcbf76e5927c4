"""Agent and run apart, faults between any two steps of either: nothing doubled, nothing lost, all placed in the end."""

from collections import Counter
from collections.abc import Generator
from random import Random

import pytest

from rota.agent import Agent
from rota.coordination import ownership
from rota.coordination.checkpoint import Guards as CheckpointGuards
from rota.coordination.membership import join
from rota.coordination.memory import MemoryServer
from rota.coordination.records import Head, Live, Own, Slot, Slots, encode
from rota.coordination.store import Create, Set
from rota.coordination.tree import Tree
from rota.core.reconcile import Guards, Looked
from tests.sim.handover.run import RunGuards, consume
from tests.sim.handover.world import Ablation, World

CHUNK = 15
RESTLESS = 0.2  # many hand-overs, for guards whose window is narrow


@pytest.mark.parametrize("chunk", range(10))
def test_no_fault_between_any_two_steps_does_damage(chunk: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        world = World(seed).play()
        assert not world.checker.damage, world.repro()
        counts += world.counts
    assert counts["faults"] > 100
    assert counts["fenced"] > 0  # else it proved nothing


@pytest.mark.parametrize("restless", [0.02, RESTLESS])
def test_without_faults_nobody_is_fenced_or_forced_or_broken(restless: float) -> None:
    for seed in range(2 * CHUNK):
        world = World(seed, faults=False, ablation=Ablation(restless=restless)).play()
        assert not world.checker.damage, world.repro()
        assert world.counts["drain"] + world.counts["wait"] > 0


ABLATIONS = {
    "no token in the table": ("stale", True, Ablation(run=RunGuards(token=False))),
    "offset and commit on two handles": ("doubled", True, Ablation(run=RunGuards(one_handle=False))),
    "no own check before consuming": ("impostor", True, Ablation(run=RunGuards(own=False))),
    "no own check at the checkpoint": ("unowned", True, Ablation(checkpoint=CheckpointGuards(own=False))),
    "two incarnations act": ("usurped", True, Ablation(agent=Guards(newest=False))),
    "own records read before the run's node": (
        "rude",
        False,
        Ablation(run=RunGuards(node_first=False), restless=RESTLESS),
    ),
    "no look at the target before consuming": ("rude", False, Ablation(run=RunGuards(target=False), restless=RESTLESS)),
    "release without drain": ("rude", False, Ablation(agent=Guards(drain=False))),
    "claims beyond the cap": ("overfull", False, Ablation(agent=Guards(cap=False), restless=RESTLESS)),
    "no wait before a forced claim": ("rude", False, Ablation(agent=Guards(wait=False))),
    "two runs of one owner": ("misparked", False, Ablation(run=RunGuards(elder=False))),
    "release under a target that is no more": (
        "rude",
        False,
        Ablation(writes=ownership.Guards(dropped=False), restless=0.5),
    ),
    "parks whoever owns it now": (
        "misparked",
        True,
        Ablation(run=RunGuards(own_at_park=False), restless=0.1, poison=0.5, longest_batch=6.0),
    ),
    "checkpoint before the telling": ("untold", True, Ablation(run=RunGuards(told_first=False))),
}

SEEDS = {"parks whoever owns it now": range(2000, 2100)}  # rare: about one in fifty


@pytest.mark.parametrize("what", ABLATIONS)
def test_each_guard_that_is_taken_away_does_damage(what: str) -> None:
    kind, faults, ablation = ABLATIONS[what]
    for seed in SEEDS.get(what, range(100)):
        if World(seed, faults=faults, ablation=ablation).play().checker.damage[kind]:
            return
    pytest.fail(f"{what}: no {kind} in 100 seeds, so the guard or the test is idle")


@pytest.mark.parametrize("since", [True, False])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_commit_that_failed_is_not_taken_for_an_earlier_one_of_its_run(fresh: bool, since: bool) -> None:
    """Its id is its own, and its run looks no further back than where it began: one of the two is enough."""
    world = World(0, faults=False, ablation=Ablation(run=RunGuards(fresh_id=fresh, since=since), poison=0.0))
    config, world.max_run, world.now = world.owner(2), 1, 10.0
    faults = iter((None, None, None, "before"))  # claim and batch of one partition, then of the other
    world.table.fault = lambda: next(faults)
    for _ in consume(world, config, Tree(world.server.connect(), "g"), Random(0)):
        world.observe()
    assert (world.checker.damage["checkpoint"] > 0) == (not fresh and not since)


class LiveFirst(Agent):
    """Reads who is live before it reads who owns: the order that the machine's laws forbid."""

    def look(self) -> Generator[None, None, Looked]:
        steps = super().look()
        live = frozenset(self.store.children(self.paths.lives))
        yield from self._until_owners(steps)
        return Looked(**{name: getattr(self._seen, name) for name in Looked.__slots__} | {"live": live})

    def _until_owners(self, steps: Generator[None, None, Looked]) -> Generator[None, None, None]:
        self._seen = yield from steps


@pytest.mark.parametrize(("kind", "robbed"), [(Agent, False), (LiveFirst, True)])
def test_own_is_read_before_live(kind: type[Agent], robbed: bool) -> None:
    """w2 joins and claims while w1 is in the middle of its look: w1 must not take it for dead."""
    server = MemoryServer(lambda: 0.0)
    tree, other = Tree(server.connect(), "g"), Tree(server.connect(), "g")
    tree.found()
    slot = encode(Slots(slots=(Slot(epoch=1, partitions=frozenset({"s:1"})),)))
    tree.store.multi([Create(tree.paths.own("s:1"), encode(Own())), Create(tree.paths.assign("w1"), slot)])
    tree.store.multi([Create(tree.paths.assign("w2"), slot), Set(tree.paths.head, encode(Head(epoch=1)), -1)])
    said: list[str] = []
    agent = kind(
        tree,
        "w1",
        Live(),
        lambda word, /, **facts: said.append(f"{word} {facts.get('reason', '')}"),
        max_shutdown=9,
        session_timeout=9,
        clock=lambda: 0.0,
    )
    for _ in agent.cycle():
        pass
    steps = agent.cycle()
    next(steps)  # the target is read, and by LiveFirst who is live
    ownership.claim(other, join(other, "w2", Live()), "s:1", 0)
    for _ in steps:
        pass
    assert ("claimed gone" in said) == robbed
    assert ("wait " in said) != robbed
