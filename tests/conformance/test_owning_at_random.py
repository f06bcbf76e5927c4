"""Seeded histories: workers claim, commit and release over faults, and a checker counts lost and doubled offsets."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from rota.coordination import membership
from rota.coordination.checkpoint import Entry, write_checkpoints
from rota.coordination.group_state import GroupState
from rota.coordination.ownership import Ownership
from rota.coordination.records import Checkpoint, Live, Own, encode
from rota.errors import Conflict, CoordinationError, Unknown
from simulator.memory_store import MemoryServer, MemoryStore
from tests.ablations import NO_OWNER, NO_RUN, Blind, Change, change_store
from tests.claiming import NotOwner, claim_one, release_one

pytestmark = pytest.mark.fast

PARTITIONS = ("p:0", "p:1")
WORKERS = 3


@dataclass
class Actor:
    """A worker that looks, pauses, and acts on what it saw before the pause."""

    store: MemoryStore
    tree: GroupState
    name: str
    incarnation: str = ""
    run: str = ""
    held: dict[str, tuple[Ownership, int]] = field(default_factory=dict)  # the right, and the offset to go on from

    def join(self) -> None:
        self.held.clear()
        self.incarnation = membership.join(self.tree, self.name, Live())
        self.run = membership.register_run(self.tree, f"run-{self.name}", self.incarnation, PARTITIONS)


class History:
    """What took effect: per partition, each commit's (from, to); the checker's only input."""

    def __init__(self, seed: int, make: type[Entry] = Entry, *changes: Change) -> None:
        self.chance = random.Random(seed)
        self.make = make
        self.server = MemoryServer(clock=lambda: 0.0)
        self.tree = GroupState(self.server.connect(), "g")
        self.tree.found()
        self.effects: dict[str, list[tuple[int, int]]] = {p: [] for p in PARTITIONS}
        self.happened: Counter[str] = Counter()
        for partition in PARTITIONS:
            self.tree.store.create(self.tree.paths.own(partition), encode(Own()))
        self.actors = []
        for number in range(WORKERS):
            store = change_store(self.server.connect(), *changes)
            self.actors.append(Actor(store, GroupState(store, "g"), f"w{number}"))
            self.actors[-1].join()

    def play(self, steps: int) -> "History":
        for _ in range(steps):
            actor = self.chance.choice(self.actors)
            step = self.chance.choice((self.claim, self.commit, self.commit, self.commit, self.release, self.expire))
            try:
                step(actor)
            except Conflict:
                self.happened["conflict"] += 1
                actor.held.clear()
            except NotOwner:
                self.happened["refused"] += 1
            except CoordinationError:
                self.happened["unavailable"] += 1
        return self

    def claim(self, actor: Actor) -> None:
        if actor.incarnation not in {v.incarnation for v in self.tree.live()} and self.chance.random() < 0.6:
            actor.join()  # it noticed; otherwise it goes on as a zombie
        partition = self.chance.choice(PARTITIONS)
        seen = self.tree.owned([partition])[partition]
        alive = {v.incarnation for v in self.tree.live()}
        if seen.incarnation in alive and self.chance.random() < 0.9:
            return  # not forced
        self.lose(actor)
        right = claim_one(actor.tree, actor.incarnation, partition, seen.version)
        checkpoint = self.tree.checkpoints([partition]).get(partition)
        actor.held[partition] = right, checkpoint.record.offset if checkpoint else 0
        self.happened["claim"] += 1

    def commit(self, actor: Actor) -> None:
        """A batch takes time: the offset it starts from was read at the claim or at its last commit."""
        if not actor.held:
            return
        partition = self.chance.choice(sorted(actor.held))
        right, start = actor.held[partition]
        end = start + self.chance.randint(1, 5)
        seen = self.tree.checkpoints([partition]).get(partition)
        checkpoint = Checkpoint(offset=end, token=right.token, run_id="r")
        entry = self.make(right, checkpoint, seen)
        before = self.tree.store.get(self.tree.paths.checkpoint(partition))
        self.lose(actor)
        try:
            refused = write_checkpoints(actor.tree, actor.run, [entry])[partition]
        except Unknown:
            refused = None
        if self.tree.store.get(self.tree.paths.checkpoint(partition)) != before:
            self.effects[partition].append((start, end))
            self.happened["commit"] += 1
        if refused is not None:
            self.happened["refused"] += 1
            del actor.held[partition]
            return
        now = self.tree.checkpoints([partition]).get(partition)
        actor.held[partition] = right, now.record.offset if now else 0

    def release(self, actor: Actor) -> None:
        if actor.held:
            partition, (right, _) = actor.held.popitem()
            self.lose(actor)
            release_one(actor.tree, actor.incarnation, partition, right.version)

    def expire(self, actor: Actor) -> None:
        if self.chance.random() < 0.3:
            self.server.expire(actor.store.session)
            self.happened["expire"] += 1

    def lose(self, actor: Actor) -> None:
        if self.chance.random() < 0.15:
            actor.store.lose_reply() if self.chance.random() < 0.5 else actor.store.lose_request()

    def damage(self) -> int:
        """Commits that did not go on exactly where the one before them ended."""
        wrong = 0
        for effects in self.effects.values():
            expected = 0
            for start, end in effects:
                wrong += start != expected
                expected = end
        return wrong


def total(seeds: int = 150, make: type[Entry] = Entry, *changes: Change) -> tuple[int, Counter[str], list[int]]:
    happened: Counter[str] = Counter()
    bad: list[int] = []
    wrong = 0
    for seed in range(seeds):
        history = History(seed, make, *changes).play(120)
        happened += history.happened
        if history.damage():
            bad.append(seed)
            wrong += history.damage()
    return wrong, happened, bad


def test_nothing_is_lost_or_doubled() -> None:
    wrong, happened, bad = total()
    assert wrong == 0, f"History(seed).play(120) for seeds {bad[:5]}"
    assert happened["commit"] > 2000
    assert happened["expire"] > 300
    assert happened["refused"] > 100, "a suite in which nothing is refused proves nothing"


def test_without_the_own_records_version_there_is_damage() -> None:
    assert total(40, Blind, NO_OWNER, NO_RUN)[0] > 20
