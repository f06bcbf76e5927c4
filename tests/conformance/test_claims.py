"""Laws of claims and releases in batches: the result for each partition agrees with its record."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.coordination import membership
from rota.coordination.group_state import GroupState
from rota.coordination.ownership import AT_ONCE, claim_all, release_all
from rota.coordination.publication import Publication, publish, take_control
from rota.coordination.records import Head, Live, Slot, Slots, encode
from rota.coordination.store import MAX_REQUEST, Create, Node, Op, Set, Store
from rota.core import reconcile
from rota.group.agent import LINES, MAX_RECORDS_OBSERVED, Agent
from rota.ids import MAX_PARTITION
from simulator.memory_store import MemoryServer
from tests.ablations import NO_LIVE, change_store
from tests.conformance.targets import found_with
from tests.conformance.worlds import MemoryWorld, World

NAMES = tuple(f"p:{n:03}" for n in range(AT_ONCE))


def join_worker(world: World, group: str, worker: str) -> tuple[GroupState, str]:
    tree = GroupState(world.connect(), group)
    return tree, membership.join(tree, worker, Live())


def record_multis(store: Store) -> list[Sequence[Op]]:
    """Every multi that the store sends from now on."""
    sent: list[Sequence[Op]] = []
    inner = store.multi

    def multi(ops: Sequence[Op]) -> tuple[Node | None, ...]:
        sent.append(ops)
        return inner(ops)

    store.multi = multi  # type: ignore[method-assign]
    return sent


def test_a_batch_is_one_multi_and_its_tokens_grow_with_each_change_of_hands(world: World, group: str) -> None:
    found_with(GroupState(world.connect(), group), NAMES)
    (one, me), (other, it) = join_worker(world, group, "w1"), join_worker(world, group, "w2")
    sent = record_multis(one.store)
    first = claim_all(one, me, dict.fromkeys(NAMES, 0))
    assert len(sent) == 1
    assert not first.refused
    assert {p: (v.incarnation, v.version, v.token) for p, v in one.owned().items()} == {
        p: (me, 1, own.token) for p, own in first.taken.items()
    }
    second = claim_all(other, it, dict.fromkeys(NAMES[::2], 1)).taken
    assert all(second[p].token > first.taken[p].token for p in second)
    refused = release_all(one, me, dict.fromkeys(NAMES, 1))
    assert set(refused) == set(second)
    assert {p for p, v in one.owned().items() if v.incarnation} == set(second)


def test_stale_partitions_of_a_batch_are_named_and_the_rest_is_sent_once_more(world: World, group: str) -> None:
    """Half of them were overtaken: a multi for each of these would take minutes where there are thousands."""
    found_with(GroupState(world.connect(), group), NAMES)
    (one, me), (other, it) = join_worker(world, group, "w1"), join_worker(world, group, "w2")
    theirs = set(claim_all(other, it, dict.fromkeys(NAMES[1::2], 0)).taken)
    sent = record_multis(one.store)
    claimed = claim_all(one, me, {**dict.fromkeys(NAMES, 0), "p:missing": 0})
    assert (set(claimed.taken), set(claimed.refused)) == (set(NAMES) - theirs, theirs | {"p:missing"})
    assert len(sent) == 2
    assert {claimed.refused[p] for p in theirs} == {"it was changed since it was read"}
    assert {v.incarnation for p, v in one.owned().items() if p in theirs} == {it}


def test_if_the_writer_has_changed_nothing_is_written(world: World, group: str) -> None:
    tree = found_with(GroupState(world.connect(), group), NAMES)
    one, me = join_worker(world, group, "w1")
    done = publish(tree, take_control(tree), Publication({"w1": frozenset(NAMES)}))
    target = one.target("w1")
    assert target is not None
    publish(tree, done.term, Publication({"w1": frozenset(NAMES[1:])}))
    claimed = claim_all(one, me, dict.fromkeys(NAMES, 0), target.version)
    assert (claimed.taken, set(claimed.refused)) == ({}, set(NAMES))
    assert len(set(claimed.refused.values())) == 1
    membership.leave(one, me)
    assert set(claim_all(one, me, dict.fromkeys(NAMES, 0)).refused) == set(NAMES)
    assert {v.incarnation for v in tree.owned().values()} == {None}


@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_lost_reply_of_a_batch_is_resolved_for_each(world: World, group: str, what: str) -> None:
    found_with(GroupState(world.connect(), group), NAMES)
    (one, me), (other, it) = join_worker(world, group, "w1"), join_worker(world, group, "w2")
    theirs = set(claim_all(other, it, dict.fromkeys(NAMES[:3], 0)).taken)
    world.lose(one.store, what)
    claimed = claim_all(one, me, dict.fromkeys(NAMES[3:], 0))
    assert (set(claimed.taken), claimed.refused) == (set(NAMES) - theirs, {})
    assert {p: own.token for p, own in claimed.taken.items()} == {
        p: v.token for p, v in one.owned().items() if v.incarnation == me
    }
    world.lose(one.store, what)
    assert not release_all(one, me, dict.fromkeys(NAMES[3:], 1))
    assert {p for p, v in one.owned().items() if v.incarnation} == theirs


def test_a_batch_of_the_longest_ids_fits_into_a_request(memory: MemoryServer) -> None:
    longest = [f"s:{i:05}".ljust(MAX_PARTITION, "x") for i in range(AT_ONCE)]
    tree = found_with(GroupState(memory.connect(), "g" * 128), longest)
    me = membership.join(tree, "w" * 128, Live())
    publish(tree, take_control(tree), Publication({"w" * 128: frozenset(longest)}))
    target = tree.target("w" * 128)
    assert target is not None
    sent = record_multis(tree.store)
    assert len(claim_all(tree, me, dict.fromkeys(longest, 0), target.version).taken) == AT_ONCE
    (ops,) = sent
    assert sum(len(op.path) + 60 + len(getattr(op, "data", b"")) for op in ops) < MAX_REQUEST / 4


# --- histories

WORKERS = ("w1", "w2")
STEP = st.tuples(
    st.sampled_from(WORKERS),
    st.sampled_from(("claim", "claim", "release", "look")),
    st.sets(st.integers(0, 4), min_size=1),
    st.sampled_from(("", "", "", "reply", "request")),
)


def damage(world: World, group: str, steps: Sequence[tuple[str, str, set[int], str]], spoil: object = None) -> int:
    """Two workers act in batches on what they saw last. Returns how often one was given a partition while the other had
    been given it before, and no later write had taken it away."""
    tree = found_with(GroupState(world.connect(), group), names := tuple(f"q:{n}" for n in range(5)))
    members = {worker: join_worker(world, group, worker) for worker in WORKERS}
    seen = {worker: dict.fromkeys(names, 0) for worker in WORKERS}
    won: dict[tuple[str, int], str] = {}
    tokens: dict[str, int] = dict.fromkeys(names, -1)
    wrong = 0
    for worker, what, numbers, lost in steps:
        mine, me = members[worker]
        if callable(spoil):
            spoil(mine.store)
        wanted = {names[n]: seen[worker][names[n]] for n in sorted(numbers)}
        held = {p: v for p, v in wanted.items() if won.get((p, v)) == me}
        if lost and (what == "claim" or (what == "release" and held)):  # else the loss would strike a later step
            world.lose(mine.store, lost)
        if what == "look":
            seen[worker] = {p: v.version for p, v in tree.owned().items()}
        elif what == "claim":
            claimed = claim_all(mine, me, wanted)
            for p, own in claimed.taken.items():
                again = (
                    won.setdefault((p, own.version), me) == me and own.token == tokens[p]
                )  # read back: still its own
                wrong += own.version != wanted[p] + 1 or not (own.token > tokens[p] or again)
                wrong += won[p, own.version] != me
                tokens[p] = max(tokens[p], own.token)
            wrong += claimed.taken.keys() | claimed.refused.keys() != wanted.keys()
        elif held:
            release_all(mine, me, held)
    for p, view in tree.owned().items():
        wrong += view.incarnation is not None and won.get((p, view.version)) != view.incarnation
    return wrong


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=st.lists(STEP, max_size=25))
def test_each_answer_agrees_with_the_record(steps: list[tuple[str, str, set[int], str]]) -> None:
    world = MemoryWorld()
    assert damage(world, "g", steps) == 0
    world.close()


def careless(store: Store) -> None:
    """Drops the version of every record of a multi but the first."""
    inner = type(store).multi

    def multi(ops: Sequence[Op]) -> tuple[Node | None, ...]:
        sets = [n for n, op in enumerate(ops) if isinstance(op, Set)]
        return inner(store, [replace(op, version=-1) if n in sets[1:] else op for n, op in enumerate(ops)])

    store.multi = multi  # type: ignore[method-assign]


ALL = {0, 1, 2, 3, 4}
HISTORY = [
    ("w1", "claim", {1, 2, 3, 4}, ""),
    ("w2", "claim", ALL, ""),  # the first record is still as it was read, the others are not
    ("w1", "look", {0}, ""),
    ("w1", "claim", {0, 1}, "reply"),
    ("w2", "claim", {0, 1, 2}, "request"),
    ("w2", "look", {0}, ""),
    ("w2", "release", ALL, ""),
    ("w2", "claim", {1, 2, 3}, "reply"),
]


@pytest.mark.parametrize("spoil", [None, careless], ids=["whole", "a batch checks its first record only"])
def test_a_store_that_drops_the_versions_of_a_batch_does_damage(world: World, group: str, spoil: object) -> None:
    found = damage(world, group, HISTORY, spoil)
    assert found == 0 if spoil is None else found > 3


# --- the agent


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Played:
    """An agent over a store in memory, whose target is set by hand."""

    def __init__(self, names: Sequence[str], agent: type[Agent] = Agent) -> None:
        self.server, self.clock, self.said = MemoryServer(lambda: 0.0), Clock(), list[tuple[str, dict[str, object]]]()
        self.tree = found_with(GroupState(self.server.connect(), "g"), names)
        slot = Slots(slots=(Slot(epoch=1, partitions=frozenset(names)),))
        head = Set(self.tree.paths.head, encode(Head(epoch=1)), -1)
        self.tree.store.multi([Create(self.tree.paths.assign("w1"), encode(slot)), head])
        self.agent = agent(
            GroupState(self.server.connect(), "g"),
            "w1",
            Live(),
            lambda word, /, **facts: self.said.append((word, facts)),
            max_shutdown=30,
            session_timeout=10,
            clock=self.clock,
        )

    def cycle(self, seconds: float = 1.0) -> int:
        """One round; how many own records it read."""
        self.clock.now += seconds
        read: list[str] = []
        inner = self.agent.tree.owned
        self.agent.tree.owned = lambda names: read.extend(names) or inner(names)  # type: ignore
        for _ in self.agent.cycle():
            pass
        del self.agent.tree.owned
        return len(read)

    def owned(self) -> int:
        return sum(v.incarnation == self.agent.state.incarnation for v in self.tree.owned().values())


def test_an_agent_claims_and_releases_in_as_few_multis_as_fit_and_counts_what_is_much() -> None:
    names = [f"p:{n:04}" for n in range(1_000)]
    played = Played(names)
    played.cycle()
    sent = record_multis(played.agent.store)
    played.cycle()
    assert (len(sent), played.owned()) == (3, 1_000)
    claimed = [facts for word, facts in played.said if word == "claimed"]
    assert [(f["partitions"], f["first"], f["last"], f["reason"]) for f in claimed] == [
        (400, "p:0000", "p:0399", "free"),
        (400, "p:0400", "p:0799", "free"),
        (200, "p:0800", "p:0999", "free"),
    ]
    assert [f["token"] for f in claimed] == [played.tree.owned()[str(f["last"])].token for f in claimed]
    kept = frozenset(names[LINES:])
    slots = Slots(slots=(Slot(epoch=1, partitions=frozenset(names)), Slot(epoch=2, partitions=kept)))
    played.tree.store.set(played.tree.paths.assign("w1"), encode(slots), -1)
    played.tree.store.set(played.tree.paths.head, encode(Head(epoch=2)), -1)
    sent.clear()
    played.cycle()
    assert (len(sent), played.owned()) == (1, len(kept))
    assert [f["partition"] for word, f in played.said if word == "released"] == names[:LINES]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.group.agent.MAX_RECORDS_OBSERVED", 5)


def test_a_look_reads_no_more_than_it_can_act_upon_in_time(few: None) -> None:
    """50,000 records took longer to read than a look is good for: not one of them was ever claimed."""
    played = Played([f"p:{n:02}" for n in range(23)])
    read = [played.cycle() for _ in range(30)]
    assert max(read) == 5
    assert played.owned() == 23
    assert not played.agent.unsettled
    assert all(sum(read[n : n + 12]) >= 23 for n in range(8, 18)), "all are proven again and again"
    played.agent.leave(hurry=True)
    while played.agent.done is None:
        assert played.cycle() <= 5
    assert (played.agent.done.clean, played.owned()) == (True, 0)
    assert MAX_RECORDS_OBSERVED > 1_000


class Forgetful(Agent):
    """Takes what had no room in a look for what is not known."""

    def observe(self):  # type: ignore
        looked = yield from super().observe()
        return replace(looked, unread=frozenset())


@pytest.mark.parametrize(("agent", "taken"), [(Agent, 12), (Forgetful, 0)])
def test_an_owner_that_is_waited_for_is_waited_for_while_others_are_read(
    few: None, agent: type[Agent], taken: int
) -> None:
    """Without the knowledge of unread records each wait began anew at each turn, and no owner was ever forced."""
    names = [f"p:{n:02}" for n in range(12)]
    played = Played(names, agent)
    other = GroupState(played.server.connect(), "g")
    claim_all(other, membership.join(other, "w2", Live()), dict.fromkeys(names, 0))
    for _ in range(60):
        played.cycle()
    assert played.owned() == taken
    assert len([1 for word, _ in played.said if word == "wait"]) == 12 or taken == 0


def test_an_agent_that_leaves_waits_for_the_turn_of_what_it_did_not_read(few: None) -> None:
    """The first turn names nothing of its own; the machine must not conclude that nothing is known of the rest."""
    played = Played([f"p:{n:02}" for n in range(12)])
    for _ in range(8):
        played.cycle()
    other = GroupState(played.server.connect(), "g")
    theirs = membership.join(other, "w2", Live())
    claim_all(other, theirs, {p: v.version for p, v in sorted(other.owned().items())[:6]})
    played.agent.leave(hurry=True)
    while played.agent.done is None:
        played.cycle()
    assert (played.agent.done.clean, played.owned()) == (True, 0)
    assert sum(v.incarnation == theirs for v in other.owned().values()) == 6


def test_an_agent_reads_only_its_own_runs_and_only_to_release(few: None) -> None:
    """Each agent read every run's node of the group at each look: 240 MiB/s with 100 agents."""
    names = [f"p:{n}" for n in range(4)]
    played = Played(names)
    tree = played.tree
    for _ in range(3):
        played.cycle()
    me = played.agent.state.incarnation or ""
    mine, other = (GroupState(played.server.connect(), "g") for _ in range(2))
    run = membership.register_run(mine, "mine", me, names[:1])
    membership.register_run(other, "other", membership.join(other, "w2", Live()), names[1:])
    read: list[str] = []
    inner = played.agent.store.get_many
    played.agent.store.get_many = lambda paths: read.extend(paths) or inner(paths)  # type: ignore

    def runs() -> list[str]:
        read.clear()
        played.cycle()
        return [path for path in read if path.startswith(f"{tree.paths.runs}/")]

    assert [runs() for _ in range(8)] == [[]] * 8
    slots = Slots(slots=(Slot(epoch=1, partitions=frozenset(names)), Slot(epoch=2, partitions=frozenset(names[2:]))))
    tree.store.set(tree.paths.assign("w1"), encode(slots), -1)
    tree.store.set(tree.paths.head, encode(Head(epoch=2)), -1)
    assert [runs() for _ in range(3)] == [[run]] * 3
    assert {p for p, v in tree.owned().items() if v.incarnation} == {names[0], *names[2:]}
    membership.end_run(mine, run)
    assert [runs() for _ in range(3)] == [[], [], []]
    assert played.owned() == 2


ONE = st.one_of(
    st.builds(reconcile.Claim, st.sampled_from("abcdef"), st.just(1), st.sampled_from(("free", "gone"))),
    st.builds(reconcile.Release, st.sampled_from("abcdef"), st.just(1), st.sampled_from(("revoked", "leaving"))),
    st.just(reconcile.Announce()),
)


@given(st.lists(ONE, max_size=20), st.integers(1, 5))
def test_batches_keep_the_order_and_hold_one_kind(instructions: list[reconcile.Instruction], most: int) -> None:
    effects = list(reconcile.batches(instructions, most))
    flat = [one for effect in effects for one in (effect if isinstance(effect, tuple) else (effect,))]
    assert flat == instructions
    for effect in effects:
        if isinstance(effect, tuple):
            assert 1 <= len(effect) <= most
            assert len({(type(one), one.reason if isinstance(one, reconcile.Release) else "") for one in effect}) == 1


def test_the_live_check_of_a_batch_stops_a_worker_whose_session_ended(world: World, group: str) -> None:
    found_with(GroupState(world.connect(), group), NAMES)
    one, me = join_worker(world, group, "w1")
    membership.leave(one, me)
    sent = one.store.multi
    change_store(one.store, NO_LIVE)
    assert len(claim_all(one, me, dict.fromkeys(NAMES, 0)).taken) == AT_ONCE
    one.store.multi = sent  # type: ignore[method-assign]
    assert len(release_all(one, me, dict.fromkeys(NAMES, 1))) == AT_ONCE
