"""Laws of publication: one consistent assignment at every instant, wherever a publisher dies, whoever reads meanwhile."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

import pytest

from rota.coordination import membership, ownership
from rota.coordination.group_state import GroupState
from rota.coordination.memory import MemoryServer, MemoryStore
from rota.coordination.overrides import cordon
from rota.coordination.publication import (
    Audit,
    Publication,
    Published,
    Term,
    publication_of,
    publish,
    take_control,
)
from rota.coordination.records import Live, Own, Slots
from rota.coordination.snapshot import read_basis, read_snapshot
from rota.coordination.store import Node, Op, Set
from rota.core import plan
from rota.errors import AssignmentError, Conflict, Unavailable
from rota.rebalance import rebalance
from tests.ablations import NO_CONTROL, Change, changed, new_slot_only, publish_carelessly
from tests.conformance.worlds import World

Multi = Callable[[Sequence[Op]], tuple[Node | None, ...]]
Targets = Mapping[str, frozenset[str]]


class Killed(Exception):
    """The publisher's process ends here."""


class Mortal(MemoryStore):
    """A store whose process is killed before its `left`-th multi from now, and that counts what it wrote."""

    def __init__(self, server: MemoryServer, left: int | None = None) -> None:
        super().__init__(server)
        self.left, self.multis, self.writes = left, 0, 0

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        if self.left is not None:
            if self.left == 0:
                raise Killed
            self.left -= 1
        self.multis += 1
        self.writes += sum(isinstance(op, Set) and not op.path.endswith("/clock") for op in ops)
        return super().multi(ops)


def parts(letters: str) -> frozenset[str]:
    """A partition a letter."""
    return frozenset(f"s:{letter}" for letter in letters)


def effective(tree: GroupState) -> Targets:
    """What every reader would find now, straight from the records: worker -> its partitions, if any."""
    _, targets = tree.targets()
    return {w: t.partitions for w, t in targets.items() if t.partitions}


def damage(tree: GroupState, published: Targets) -> int:
    """How many partitions a reader finds elsewhere than published: nowhere, at somebody else's, or in two places."""
    found: Counter[tuple[str, str]] = Counter((p, w) for w, ids in effective(tree).items() for p in ids)
    wanted = Counter((p, w) for w, ids in published.items() for p in ids)
    return sum((found - wanted).values()) + sum((wanted - found).values())


def targets(seed: int, workers: int, partitions: int) -> Targets:
    """Some assignment of all partitions to some of the workers."""
    chance = random.Random(seed)
    names = chance.sample([f"w{i}" for i in range(workers)], chance.randint(1, workers))
    owner = {f"s:{i}": chance.choice(names) for i in range(partitions)}
    return {w: frozenset(p for p, o in owner.items() if o == w) for w in names}


def founded(server: MemoryServer) -> GroupState:
    tree = GroupState(server.connect(), "default")
    tree.found()
    return tree


# --- what a publication does


def test_it_makes_a_plan_current(world: World, tree: GroupState) -> None:
    workers = {w: GroupState(world.connect(), tree.group) for w in ("w1", "w2")}
    for name, agent in workers.items():
        membership.join(agent, name, Live())
    assert tree.grow("flights", ["AA", "UA", "DL"]) == ("AA", "DL", "UA")
    look = read_snapshot(tree)
    assert look.basis.moved
    assert look.basis.joined == ("w1", "w2")
    done = publish(tree, take_control(tree), publication_of(look, plan(look.snapshot), "w1, w2 joined.", "run-1"))
    assert (done.epoch, done.published, done.changed) == (1, True, ("w1", "w2"))
    held = {w: agent.target(w) for w, agent in workers.items()}
    assert {w: t.epoch for w, t in held.items() if t} == {"w1": 1, "w2": 1}
    assert sorted(p for t in held.values() if t for p in t.partitions) == ["flights:AA", "flights:DL", "flights:UA"]
    assert {p: v.incarnation for p, v in tree.owned().items()} == dict.fromkeys(
        ("flights:AA", "flights:DL", "flights:UA")
    )
    audit = tree.epochs()[-1]
    assert audit.sentence == "Epoch 1: w1, w2 joined."
    assert (audit.epoch, audit.joined, audit.run_id, audit.moved) == (1, ("w1", "w2"), "run-1", 3)
    assert {m.partition for m in audit.moves} == {"flights:AA", "flights:DL", "flights:UA"}
    assert not read_basis(tree).moved


def test_a_round_that_moves_nothing_is_no_epoch_but_is_noted(tree: GroupState) -> None:
    term = take_control(tree)
    first = publish(tree, term, Publication({"w1": parts("p")}, basis="a"))
    again = publish(tree, first.term, Publication({"w1": parts("p")}, basis="b", due=5.0, memory={"hits": 2}))
    assert (again.epoch, again.published, again.changed) == (1, False, ())
    head = tree.head()
    assert (head.record.epoch, head.record.basis, head.record.due) == (1, "b", 5.0)
    assert tree.controller().record.memory == {"hits": 2}
    before = head.version
    same = publish(tree, again.term, Publication({"w1": parts("p")}, basis="b", due=5.0, memory={"hits": 2}))
    assert tree.head().version == before, "nothing new to note, nothing written"
    assert publish(tree, same.term, Publication({"w1": frozenset()})).epoch == 2


def test_it_costs_one_write_for_each_changed_worker_and_one_flip(memory: MemoryServer) -> None:
    store = Mortal(memory)
    tree = GroupState(store, "default")
    tree.found()
    everything = {f"w{i}": frozenset(f"s:{j}" for j in range(i * 20, i * 20 + 20)) for i in range(50)}
    done = publish(tree, take_control(tree), Publication(everything))
    moved = everything | {"w0": everything["w0"] - {"s:0"}, "w1": everything["w1"] | {"s:0"}}
    store.multis = store.writes = 0
    done = publish(tree, done.term, Publication(moved))
    assert done.changed == ("w0", "w1")
    assert store.writes == 2 + 2, "two workers, the head, the controller's memory"
    assert store.multis == 3, "the slots, the time for the audit, the flip"


def test_a_worker_that_is_gone_and_returns_finds_no_old_assignment(tree: GroupState) -> None:
    done = publish(tree, take_control(tree), Publication({"w1": parts("a"), "w2": parts("b")}))
    done = publish(tree, done.term, Publication({"w1": parts("ab")}))
    assert done.changed == ("w1", "w2")
    assert (back := tree.target("w2")) is not None
    assert (back.epoch, back.previous, back.partitions) == (2, 1, frozenset())
    assert tree.target("never-heard-of") is None


def test_a_plan_that_names_a_partition_twice_is_refused() -> None:
    with pytest.raises(AssignmentError, match="two targets"):
        Publication({"w1": parts("ab"), "w2": parts("bc")})


def test_a_hundred_thousand_partitions_fit_and_one_more_is_refused(memory: MemoryServer) -> None:
    tree = founded(memory)
    ids = [f"orders:customer_{random.Random(i).getrandbits(32):08x}" for i in range(100_000)]
    ids = sorted({*ids, *(f"orders:more-{i}" for i in range(100_000 - len(set(ids))))})
    term = take_control(tree)
    done = publish(tree, term, Publication({"w1": frozenset(ids)}))
    other = frozenset(f"orders:customer_{random.Random(-i - 1).getrandbits(32):08x}" for i in range(99_000))
    publish(tree, done.term, Publication({"w1": other}))
    assert (node := tree.store.get(tree.paths.assign("w1"))) is not None
    assert len(node.data) < 700_000, "two slots of 100,000 scattered ids"
    assert (target := tree.target("w1")) is not None
    assert target.partitions == other
    with pytest.raises(AssignmentError, match="above 100000"):
        Publication({"w1": frozenset([*ids, "one-more"])})


def test_only_the_last_two_hundred_audits_stay(memory: MemoryServer) -> None:
    tree = founded(memory)
    done = Published(0, False, take_control(tree), ())
    for number in range(205):
        done = publish(tree, done.term, Publication({f"w{number % 2}": parts("p")}, audit=Audit(f"{number}.")))
    assert [e.epoch for e in tree.epochs()] == list(range(6, 206))
    assert [e.epoch for e in tree.epochs(3)] == [203, 204, 205]


# --- who may publish


def test_a_deposed_controller_is_refused(world: World, tree: GroupState) -> None:
    old = take_control(tree)
    rival = GroupState(world.connect(), tree.group)
    new = take_control(rival)
    assert new.number == old.number + 1
    with pytest.raises(Conflict) as refused:
        publish(tree, old, Publication({"w1": parts("p")}))
    assert refused.value.path == tree.paths.controller
    done = publish(rival, new, Publication({"w2": parts("p")}))
    with pytest.raises(Conflict):
        publish(tree, old, Publication({"w2": parts("p")}, basis="also without a change"))
    assert done.epoch == 1
    assert effective(tree) == {"w2": parts("p")}


def interleaved(*changes: Change) -> int:
    """A controller is deposed after its slots and before its flip; its rival changes another worker. The damage."""
    server = MemoryServer(clock=lambda: 0.0)
    tree = founded(server)
    first = publish(tree, take_control(tree), Publication({"w1": parts("ab"), "w2": parts("cd")}))
    rival = GroupState(server.connect(), "default")
    final = {"w1": parts("abc"), "w2": parts("d")}

    overtaken: list[bool] = []

    class Overtaken(MemoryStore):
        """Its rival publishes a whole epoch just before this one's flip."""

        def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
            if any(op.path.endswith("/head") for op in ops) and not overtaken:
                overtaken.append(True)
                publish(rival, take_control(rival), Publication(final))
            return super().multi(ops)

    late = GroupState(changed(Overtaken(server), *changes), "default")
    with pytest.raises(Conflict) if not changes else nullcontext():
        publish(late, first.term, Publication({"w1": parts("a"), "w2": parts("bcd")}))
    return damage(tree, final)


def test_without_the_controllers_check_a_deposed_one_does_damage() -> None:
    assert interleaved() == 0
    assert interleaved(*NO_CONTROL) > 0


# --- wherever it dies


@pytest.mark.parametrize("seed", range(12))
def test_killed_at_every_write_it_leaves_one_consistent_assignment(seed: int) -> None:
    """From every prefix: what readers find is the old epoch or the new one, and the next controller cleans up."""
    before, after, later = (targets(seed * 3 + i, 5, 30) for i in range(3))
    deaths = 0
    while True:
        server = MemoryServer(clock=lambda: 0.0)
        tree = founded(server)
        publish(tree, take_control(tree), Publication(before))
        doomed = GroupState(Mortal(server, left=deaths), "default")
        try:
            publish(doomed, take_control(doomed), Publication(after))
        except Killed:
            assert damage(tree, before) == 0, f"seed {seed}, killed before write {deaths}"
        else:
            assert damage(tree, after) == 0
            break
        done = publish(tree, take_control(tree), Publication(later))
        assert damage(tree, later) == 0, f"seed {seed}, killed before write {deaths}, then published"
        assert unpublished(tree) == ()
        assert done.epoch == max(e.epoch for e in tree.epochs())
        deaths += 1
    assert deaths >= 3


def test_killed_at_every_write_also_on_the_real_server(world: World, tree: GroupState) -> None:
    """Each attempt dies one write later than the one before it, over the same tree."""
    before = targets(100, 4, 12)
    publish(tree, take_control(tree), Publication(before))
    for deaths in range(1, 20):
        doomed = GroupState(world.connect(), tree.group)
        inner, left = doomed.store.multi, [deaths]

        def multi(ops: Sequence[Op], inner: Multi = inner, left: list[int] = left) -> tuple[Node | None, ...]:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return inner(ops)

        doomed.store.multi = multi  # type: ignore[method-assign]
        try:
            publish(doomed, take_control(doomed), Publication(targets(101, 4, 12)))
        except Killed:
            assert damage(tree, before) == 0, f"killed before write {deaths}"
        else:
            break
    assert damage(tree, targets(101, 4, 12)) == 0
    assert 3 <= deaths < 19


def unpublished(tree: GroupState) -> tuple[str, ...]:
    """Workers with a slot above the head: a publisher died there."""
    head = tree.head().record.epoch
    return tuple(w for w, r in tree.assigns().items() if r.record.newest > head)


def died_then_went_on(publish_next: Callable[[GroupState, Term, Publication], Published]) -> int:
    """A publisher dies after its slots; the next one has another plan, which leaves one of those workers alone."""
    server = MemoryServer(clock=lambda: 0.0)
    tree = founded(server)
    publish(tree, take_control(tree), Publication({"w1": parts("ab"), "w2": parts("cd"), "w3": parts("e")}))
    doomed = GroupState(Mortal(server, left=2), "default")
    with pytest.raises(Killed):
        publish(doomed, take_control(doomed), Publication({"w1": parts("a"), "w2": parts("bcde")}))
    assert unpublished(tree) == ("w1", "w2", "w3")
    final = {"w1": parts("ab"), "w2": parts("c"), "w3": parts("de")}
    publish_next(tree, take_control(tree), Publication(final))
    return damage(tree, final)


def test_without_the_clean_up_a_dead_publishers_slots_come_alive() -> None:
    assert died_then_went_on(publish) == 0
    assert died_then_went_on(publish_carelessly) > 0
    with pytest.raises(AssignmentError, match="is not the plan, at w1"):
        died_then_went_on(partial(publish_carelessly, verify=True))


def test_an_epoch_is_never_used_twice(memory: MemoryServer) -> None:
    """Publishers die at random writes; whatever epoch appears in a slot appears with one content only."""
    chance = random.Random(11)
    tree = founded(memory)
    seen: dict[tuple[str, int], frozenset[str]] = {}
    published: list[int] = []
    for round_ in range(120):
        publisher = GroupState(Mortal(memory, chance.choice((None, 1, 2, 3))), "default")
        try:
            done = publish(publisher, take_control(publisher), Publication(targets(round_, 4, 12)))
            published += [done.epoch] if done.published else []
        except Killed:
            pass
        for worker, read in tree.assigns().items():
            for slot in read.record.slots:
                assert seen.setdefault((worker, slot.epoch), slot.partitions) == slot.partitions
    assert published == sorted(set(published))
    assert len(published) > 20


def test_an_undecodable_slot_is_mended_by_the_next_publication(tree: GroupState) -> None:
    done = publish(tree, take_control(tree), Publication({"w1": parts("a"), "w2": parts("b")}))
    tree.store.set(tree.paths.assign("w1"), b"rubbish", -1)
    assert set(tree.targets()[1]) == {"w2"}
    assert tree.paths.assign("w1") in tree.unreadable
    done = publish(tree, done.term, Publication({"w1": parts("a"), "w2": parts("b")}))
    assert done.changed == ("w1",)
    assert effective(tree) == {"w1": parts("a"), "w2": parts("b")}
    assert not tree.unreadable


# --- lost replies


@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_lost_reply_at_any_write_is_resolved(memory: MemoryServer, what: str) -> None:
    tree = founded(memory)
    term = take_control(tree)
    for number in range(1, 9):
        store = Faulty(memory, number, what)
        mine = GroupState(store, "default")
        wanted = targets(number, 3, 10) | {"w9": frozenset({f"s:extra{number}"})}
        done = publish(mine, term, Publication(wanted))
        term = done.term
        assert damage(tree, {w: ids for w, ids in wanted.items() if ids}) == 0
        assert tree.head().record.epoch == done.epoch
        assert len(tree.epochs()) == number
        assert store.lost or number > 4


class Faulty(MemoryStore):
    """Loses the reply, or the request, of its n-th multi."""

    def __init__(self, server: MemoryServer, at: int, what: str) -> None:
        super().__init__(server)
        self.at, self.what, self.lost = at, what, False

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        self.at -= 1
        if self.at == 0:
            self.lost = True
            self.lose_reply() if self.what == "reply" else self.lose_request()
        return super().multi(ops)


def test_a_lost_reply_of_the_flip_is_resolved_on_both_stores(world: World, tree: GroupState) -> None:
    done = publish(tree, take_control(tree), Publication({"w1": parts("a")}))
    inner = tree.store.multi
    for what in ("reply", "request"):
        flipped: list[int] = []

        def multi(ops: Sequence[Op], what: str = what, flipped: list[int] = flipped) -> tuple[Node | None, ...]:
            if not flipped and any(op.path == tree.paths.head for op in ops):
                flipped.append(1)
                world.lose(tree.store, what)
            return inner(ops)

        tree.store.multi = multi  # type: ignore[method-assign]
        wanted = {"w1": frozenset({f"s:{what}"}), "w2": parts("b")}
        done = publish(tree, done.term, Publication(wanted))
        tree.store.multi = inner  # type: ignore[method-assign]
        assert flipped
        assert effective(tree) == wanted
        assert tree.head().record.epoch == done.epoch


def test_a_publisher_deposed_while_its_reply_was_lost_says_so(memory: MemoryServer) -> None:
    tree, rival = founded(memory), GroupState(memory.connect(), "default")
    term = take_control(tree)

    class Deposed(MemoryStore):
        def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
            self.lose_request()
            take_control(rival)
            return super().multi(ops)

    with pytest.raises(Conflict, match="Another controller took over"):
        publish(GroupState(Deposed(memory), "default"), term, Publication({"w1": parts("a")}))
    assert effective(tree) == {}


# --- racing readers


class Interrupted(MemoryStore):
    """Between any two reads something else happens."""

    def __init__(self, server: MemoryServer, between: Callable[[], None]) -> None:
        super().__init__(server)
        self.between = between

    def get_many(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        nodes = []
        for path in paths:
            self.between()
            nodes += super().get_many([path])
        return tuple(nodes)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_reader_that_races_publications_sees_only_what_was_published(memory: MemoryServer, most: int) -> None:
    """w1 always has something: an empty set, or one that was never current, would be a lie."""
    chance = random.Random(most)
    tree = founded(memory)
    term = [take_control(tree)]
    current: dict[int, frozenset[str]] = {}

    def publish_some() -> None:
        for _ in range(chance.randint(0, most) if chance.random() < 0.5 else 0):
            extra = parts("".join(chance.sample("bcdefgh", chance.randint(0, 6))))
            wanted = {"w1": parts("a") | extra, "w2": parts("bcdefgh") - extra}
            done = publish(tree, term[0], Publication(wanted))
            term[0] = done.term
            current.setdefault(done.epoch, wanted["w1"])

    while not current:
        publish_some()
    reader = GroupState(Interrupted(memory, publish_some), "default")
    seen = [reader.target("w1") for _ in range(150)]
    assert len({t.epoch for t in seen if t}) > 30
    for target in seen:
        if target is not None:  # the head moved at each of its looks: nothing is known, and nothing follows from it
            assert target.partitions == current[target.epoch]
    assert sum(target is None for target in seen) < 15


def test_without_the_old_slot_a_dead_publisher_leaves_workers_without_a_target() -> None:
    lost = []
    for keep in (True, False):
        server = MemoryServer(clock=lambda: 0.0)
        tree = founded(server)
        publish(tree, take_control(tree), Publication({"w1": parts("ab"), "w2": parts("cd")}))
        store = Mortal(server, left=2)
        doomed = GroupState(store if keep else changed(store, new_slot_only), "default")
        with pytest.raises(Killed):
            publish(doomed, take_control(doomed), Publication({"w1": parts("abcd")}))
        lost.append(damage(tree, {"w1": parts("ab"), "w2": parts("cd")}))
    assert lost == [0, 4]


def test_a_worker_named_for_the_first_time_has_no_target_until_the_flip(memory: MemoryServer) -> None:
    tree = founded(memory)
    doomed = GroupState(Mortal(memory, left=3), "default")
    with pytest.raises(Killed):
        publish(doomed, take_control(doomed), Publication({"w1": parts("a")}))
    assert tree.read(tree.paths.assign("w1"), Slots) is not None
    assert tree.target("w1") is None, "unknown, not empty"
    assert tree.read(tree.paths.own("s:a"), Own) is not None


def test_it_waits_for_no_connection_that_never_comes(memory: MemoryServer) -> None:
    tree = founded(memory)
    term = take_control(tree)
    assert isinstance(tree.store, MemoryStore)
    tree.store.disconnect()
    with pytest.raises(Unavailable):
        publish(tree, term, Publication({"w1": parts("a")}))
    tree.store.reconnect()
    assert publish(tree, Term(term.number, term.version), Publication({"w1": parts("a")})).epoch == 1


# --- workers that are gone


def nodes(tree: GroupState) -> set[str]:
    return set(tree.store.children(tree.paths.assigns))


def test_the_targets_of_workers_that_are_gone_do_not_pile_up(world: World, group: str) -> None:
    """Ids default to host names, and each pod has another: 100,000 empty targets made each look 13 s."""
    tree = GroupState(world.connect(), group)
    tree.found()
    tree.grow("p", [f"k{i}" for i in range(6)])
    for pod in range(12):
        with world.connect() as store:
            membership.join(GroupState(store, group), f"pod-{pod}", Live())
            rebalance(tree, "r")
            assert effective(tree) == {f"pod-{pod}": frozenset(f"p:k{i}" for i in range(6))}
        assert len(nodes(tree)) <= 2
    cordon(tree, "pod-11")
    with world.connect() as store:
        membership.join(GroupState(store, group), "pod-3", Live())  # one that comes back
        rebalance(tree, "r")
        target = tree.target("pod-3")
        assert target is not None
        assert len(target.partitions) == 6
    rebalance(tree, "r")
    assert set(tree.worker_overrides()) == {"pod-11"}, "what people override for a worker stays"


@pytest.mark.parametrize("seed", range(40))
def test_killed_while_it_removes_targets_it_leaves_one_consistent_assignment(seed: int) -> None:
    server, chance = MemoryServer(), random.Random(seed)
    tree = founded(server)
    published: Targets = {}
    for turn in range(8):
        wanted = targets(chance.randrange(10_000), 5, 12)
        members = tuple(sorted({f"{w}@{turn:016x}" for w in {*wanted, chance.choice(["w0", "w1"])}}))
        left = chance.choice([None, None, 0, 1, 2, 3])
        mortal = GroupState(Mortal(server), "default")
        term = take_control(mortal)
        assert isinstance(mortal.store, Mortal)
        mortal.store.left = left
        try:
            publish(mortal, term, Publication(wanted, members=members))
            published = wanted
        except Killed:
            pass
        assert damage(tree, published) == 0
        head = tree.head().record.epoch
        for worker, read in tree.assigns().items():
            assert read.record.effective(head) is not None or read.record.newest > head, worker


@pytest.mark.parametrize(("told", "wrong"), [(True, 0), (False, 1)])
def test_a_worker_that_is_live_keeps_its_node_for_the_sake_of_its_claims(
    world: World, group: str, told: bool, wrong: int
) -> None:
    """w1 read its target and is slow to claim. Were its node removed and made anew meanwhile, it would begin at the very
    version that w1 has read, and w1 would own what its target no longer names. The ablation: a controller that does not
    see who is live."""
    tree, mine = GroupState(world.connect(), group), GroupState(world.connect(), group)
    tree.found()
    me = membership.join(mine, "w1", Live())
    members = (me,) if told else ()
    term = publish(tree, take_control(tree), Publication({"w1": parts("p")}, members=members)).term
    seen = mine.target("w1")
    assert seen is not None
    for wanted in ({"w2": "p"}, {"w2": "pq"}, {"w1": "q", "w2": "p"}):
        made = Publication({w: parts(letters) for w, letters in wanted.items()}, members=members)
        term = publish(tree, term, made).term
    claimed = ownership.claim_all(mine, me, {"s:p": 0}, seen.version)
    target = tree.target("w1")
    assert target is not None
    assert len(claimed.taken.keys() - target.partitions) == wrong
