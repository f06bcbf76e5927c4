"""Agent and run apart, faults between any two steps of either: nothing doubled, nothing lost, all placed in the end."""

from collections import Counter
from collections.abc import Generator
from itertools import chain, repeat
from typing import Any

import pytest

from rota.coordination.group_state import GroupState
from rota.coordination.membership import join
from rota.coordination.records import Head, Live, Own, Slot, Slots, encode
from rota.coordination.store import Create, Set
from rota.core.reconcile import Observed
from rota.group.agent import Agent
from rota.ledger import change
from rota.run.serve import RunLimits
from simulator.actors import Parts
from simulator.memory_store import MemoryServer
from simulator.table import MemoryTable
from tests.ablations import NO_CAP, NO_DRAIN, NO_DROPPED, NO_NEWEST, NO_OWNER, make_changer, no_wait
from tests.claiming import claim_one
from tests.sim.ablations import (
    NO_RIGHT,
    Offsetless,
    OneId,
    RunHeardLater,
    RunNodeLater,
    RunThatRemembers,
    RunWithoutElder,
    RunWithoutOwn,
    RunWithoutTarget,
    Tokenless,
    TwoHandles,
    find_far_back,
)
from tests.sim.damage import breaks
from tests.sim.handover import HandOver

CHUNK = 15
RESTLESS = 0.2  # many hand-overs, for guards whose window is narrow


@pytest.mark.parametrize("chunk", range(5))
def test_no_fault_between_any_two_steps_does_damage(chunk: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(2 * chunk * CHUNK, 2 * (chunk + 1) * CHUNK):
        world = HandOver(seed).play()
        assert not world.checker.found, world.repro()
        counts += world.counts
    assert counts["faults"] > 200
    assert counts["fenced"] > 0  # else it proved nothing


@pytest.mark.parametrize("faults", [True, False])
def test_workers_that_await_their_first_runs_do_no_damage_and_come_to_rest(faults: bool) -> None:
    counts: Counter[str] = Counter()
    for seed in range(2 * CHUNK):
        world = HandOver(seed, faults=faults, awaits=True).play()
        assert not world.checker.found, world.repro()
        counts += world.counts
    assert counts["able"] > 3 * CHUNK, "else they did not wait"


@pytest.mark.parametrize("restless", [0.02, RESTLESS])
def test_without_faults_nothing_is_fenced_or_forced_or_broken(restless: float) -> None:
    for seed in range(2 * CHUNK):
        world = HandOver(seed, faults=False, restless=restless).play()
        assert not world.checker.found, world.repro()
        assert world.counts["drain"] + world.counts["wait"] > 0, f"seed {seed} hands nothing over, and proves nothing"


@pytest.mark.fast
def test_the_same_seed_gives_the_same_story() -> None:
    assert HandOver(1).play().story == HandOver(1).play().story


FIRST = {  # a seed in which the damage is done; where it is done in seed 0, none
    "no token in the table": 26,
    "no offset in the table": 13,
    "offset and commit on two handles": 8,
    "no own check before consuming": 1,
    "two incarnations act": 13,
    "target not read before consuming": 15,
    "claims beyond the cap": 1,
    "two runs of one owner": 38,
    "release under a target that is no more": 63,
}
ABLATIONS: dict[str, tuple[str, bool, Parts, dict[str, Any]]] = {
    "no token in the table": ("stale", True, Parts(table=Tokenless), {}),
    "no offset in the table": ("doubled", True, Parts(table=Offsetless), {"longest_batch": 8.0, "poisoned": 0.0}),
    "offset and commit on two handles": ("doubled", True, Parts(table=TwoHandles), {}),
    "no own check before consuming": ("impostor", True, Parts(run=RunWithoutOwn), {"restless": RESTLESS}),
    "no own check at the checkpoint": ("unowned", True, Parts(connected=make_changer(NO_OWNER)), {}),
    "two incarnations act": ("usurped", True, Parts(machine=NO_NEWEST), {}),
    "own records read before the run's node": ("rude", False, Parts(run=RunNodeLater), {"restless": RESTLESS}),
    "target not read before consuming": ("rude", False, Parts(run=RunWithoutTarget), {"restless": 0.5}),
    "release without drain": ("rude", False, Parts(machine=NO_DRAIN), {}),
    "claims beyond the cap": ("cap", False, Parts(machine=NO_CAP), {"restless": RESTLESS}),
    "no wait before a forced claim": ("rude", False, Parts(machine=no_wait), {}),
    "two runs of one owner": ("misparked", False, Parts(run=RunWithoutElder), {}),
    "release under a target that is no more": (
        "rude",
        False,
        Parts(connected=make_changer(NO_DROPPED)),
        {"restless": 0.5, "limits": RunLimits(linger=0.0)},  # a run that looked a moment ago seldom meets it
    ),
    "parks without reading the owner": (
        "misparked",
        True,
        Parts(connected=make_changer(NO_RIGHT), run=RunThatRemembers),
        {"restless": 0.1, "poisoned": 0.5, "longest_batch": 6.0},
    ),
    "checkpoint before the telling": ("unreported", True, Parts(run=RunHeardLater), {}),
}


@pytest.mark.parametrize("what", ABLATIONS)
def test_each_guard_that_is_taken_away_does_damage(what: str) -> None:
    kind, faults, parts, more = ABLATIONS[what]
    for seed in (FIRST.get(what, 0), *range(100)):
        world = HandOver(seed, faults=faults, parts=parts, **more)
        if breaks(world, world.play, kind):
            return
    pytest.fail(f"{what}: no {kind} in 100 seeds, so the guard or the test is idle")


@pytest.mark.parametrize("far_back", [False, True])
@pytest.mark.parametrize("table", [MemoryTable, OneId])
def test_a_commit_that_failed_is_not_taken_for_an_earlier_one_of_its_run(
    table: type[MemoryTable], far_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id is its own, and its run looks no further back than where it began: one of the two is enough."""
    world = HandOver(0, parts=Parts(table=table), poisoned=0.0, limits=RunLimits(linger=9.0))
    tree, one = GroupState(world.server.connect(), world.group), world.partitions[0]
    incarnation = join(tree, "w1", Live())
    slots = Slots(slots=(Slot(epoch=1, partitions=frozenset({one})),))
    tree.store.multi([Create(tree.paths.assign("w1"), encode(slots)), Set(tree.paths.head, encode(Head(epoch=1)), -1)])
    claim_one(tree, incarnation, one, 0)
    world.timeline.run(10)
    faults = chain((None, None, "before"), repeat(None))  # the claim, its batch, the next batch
    monkeypatch.setattr(world.log, "fault", lambda: next(faults))
    if far_back:
        monkeypatch.setattr(change, "find_commit", find_far_back)
    world.start_run("run", incarnation, (one,))
    while world.now < 60 and not (world.counts["broken"] or world.checker.found):
        world.timeline.run(world.now + 0.1)
    mistaken = table is OneId and far_back
    assert (world.checker.found["checkpoint"] > 0) == mistaken
    assert world.counts["broken"] == (not mistaken)


class LiveFirst(Agent):
    """Reads the live workers before the owners: the order that the machine's laws forbid."""

    def observe(self) -> Generator[None, None, Observed]:
        steps = super().observe()
        live = frozenset(self.store.children(self.paths.lives))
        yield from self._until_owners(steps)
        return Observed(**{name: getattr(self._seen, name) for name in Observed.__slots__} | {"live": live})

    def _until_owners(self, steps: Generator[None, None, Observed]) -> Generator[None, None, None]:
        self._seen = yield from steps


@pytest.mark.parametrize(("kind", "robbed"), [(Agent, False), (LiveFirst, True)])
def test_own_is_read_before_live(kind: type[Agent], robbed: bool) -> None:
    """w2 joins and claims while w1 is in the middle of its observation: w1 must not take it for dead."""
    server = MemoryServer(lambda: 0.0)
    tree, other = GroupState(server.connect(), "g"), GroupState(server.connect(), "g")
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
    next(steps)  # the target is read, and by LiveFirst the live workers
    claim_one(other, join(other, "w2", Live()), "s:1", 0)
    for _ in steps:
        pass
    assert ("claimed gone" in said) == robbed
    assert any(one.startswith("wait ") for one in said) != robbed
