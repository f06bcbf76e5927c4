"""Laws of ownership: one winner, tokens that only grow, zombies that write nothing, lost replies that are resolved."""

import threading
from collections.abc import Sequence

import pytest

from rota.coordination import membership
from rota.coordination.checkpoint import Entry, write_checkpoints
from rota.coordination.group_state import GroupState
from rota.coordination.ownership import Ownership
from rota.coordination.publication import Publication, publish, take_control
from rota.coordination.records import Checkpoint, Live, Own, encode
from rota.coordination.store import Node, Op, Store
from rota.errors import Conflict, Unknown
from tests.ablations import (
    NO_OWNER,
    NO_RUN,
    NO_TARGET,
    Blind,
    Change,
    change_store,
    drop_resolving,
    lock_instead,
)
from tests.claiming import NotOwner, claim_one, release_one
from tests.conformance.worlds import World, again
from tests.waiting import LONG

P = "flights:UA"


class Member:
    """A worker with its own session; its run shares it, which no test here minds."""

    def __init__(self, world: World, group: str, worker: str) -> None:
        self.store = world.connect()
        self.tree = GroupState(self.store, group)
        self.incarnation = membership.join(self.tree, worker, Live())
        self.run = membership.register_run(self.tree, f"run-of-{worker}", self.incarnation, [P])

    def claim(self, at: int) -> Ownership:
        return claim_one(self.tree, self.incarnation, P, at)

    def commit(self, owned: Ownership, offset: int, make: type[Entry] = Entry) -> bool:
        """Writes a checkpoint as a run does; whether it was written. A plain run: it read the checkpoint just now."""
        checkpoint = Checkpoint(offset=offset, token=owned.token, run_id="r")
        seen = self.tree.checkpoints([P]).get(P)
        return write_checkpoints(self.tree, self.run, [make(owned, checkpoint, seen)])[P] is None


@pytest.fixture
def free(tree: GroupState) -> GroupState:
    """A group with one free partition."""
    tree.store.create(tree.paths.own(P), encode(Own()))
    return tree


@pytest.fixture
def two(world: World, free: GroupState) -> tuple[Member, Member]:
    return Member(world, free.group, "w1"), Member(world, free.group, "w2")


def owner(tree: GroupState) -> str | None:
    return tree.owned([P])[P].incarnation


def test_claim_release_claim_and_the_token_grows(free: GroupState, two: tuple[Member, Member]) -> None:
    one, other = two
    first = one.claim(0)
    assert (first.version, owner(free)) == (1, one.incarnation)
    assert free.owned()[P].token == first.token
    with pytest.raises(NotOwner, match="changed since it was read"):
        other.claim(0)
    release_one(one.tree, one.incarnation, P, first.version)
    assert owner(free) is None
    with pytest.raises(NotOwner):
        release_one(one.tree, one.incarnation, P, first.version)
    second = other.claim(2)
    assert second.token > first.token
    forced = claim_one(one.tree, one.incarnation, P, second.version)
    assert forced.token > second.token
    assert not other.commit(second, 5), "the old owner is fenced by the version"
    assert one.commit(forced, 5)


def test_of_many_claimants_one_wins(world: World, free: GroupState) -> None:
    members = [Member(world, free.group, f"w{i}") for i in range(6)]
    won: list[Ownership] = []

    def claim(member: Member) -> None:
        try:
            won.append(member.claim(0))
        except NotOwner:
            return

    threads = [threading.Thread(target=claim, args=(m,)) for m in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [w.incarnation for w in won] == [owner(free)]


def test_a_claim_checks_the_target_that_it_was_decided_on(free: GroupState, two: tuple[Member, Member]) -> None:
    one, _ = two
    done = publish(free, take_control(free), Publication({"w1": frozenset({P})}))
    target = one.tree.target("w1")
    assert target is not None
    publish(free, done.term, Publication({"w2": frozenset({P})}))
    with pytest.raises(NotOwner):
        claim_one(one.tree, one.incarnation, P, 0, target.version)
    assert owner(free) is None
    change_store(one.store, NO_TARGET)
    taken = claim_one(one.tree, one.incarnation, P, 0, target.version)
    assert taken.incarnation == owner(free) == one.incarnation, "without the guard a revoked partition is taken"


def test_the_token_is_above_the_groups_base(free: GroupState, two: tuple[Member, Member]) -> None:
    one, other = two
    first = one.claim(0)
    free.found(token_base=1_000_000)
    second = other.claim(first.version)
    assert second.token > 1_000_000 + first.token
    assert free.owned()[P].token == second.token


# --- zombies


def test_a_zombie_with_an_expired_session_writes_nothing(
    world: World, free: GroupState, two: tuple[Member, Member]
) -> None:
    """Paused past its session, overtaken, woken: on its new session as on its old one."""
    zombie, other = two
    held = zombie.claim(0)
    assert zombie.commit(held, 100)
    world.expire(zombie.store)
    taken = other.claim(held.version)
    assert other.commit(taken, 150)
    again(zombie.store.sync)
    assert not zombie.commit(held, 665), "its token is older than the checkpoint's"
    with pytest.raises(Conflict, match="run-of-w1"):
        zombie.commit(held, 666, Blind)
    run = membership.register_run(zombie.tree, "woken", zombie.incarnation, [P])
    zombie.run = run
    assert not zombie.commit(held, 667, Blind), "a new run's node does not help: the own record's version moved"
    for call in (
        lambda: zombie.claim(taken.version),
        lambda: release_one(zombie.tree, zombie.incarnation, P, held.version),
        lambda: release_one(zombie.tree, zombie.incarnation, P, taken.version),
    ):
        with pytest.raises(NotOwner):
            call()
    assert owner(free) == other.incarnation
    assert free.checkpoints()[P].record.offset == 150
    back = membership.join(zombie.tree, "w1", Live())
    assert back != zombie.incarnation


@pytest.mark.parametrize(
    ("changes", "offset"),
    [((NO_RUN,), 150), ((NO_RUN, NO_OWNER), 667), ((NO_RUN, lock_instead), 667)],
    ids=["own-record", "no-guard", "ephemeral-version"],
)
def test_which_guard_stops_a_zombie(
    world: World, free: GroupState, two: tuple[Member, Member], changes: tuple[Change, ...], offset: int
) -> None:
    """A lock that is an ephemeral node made anew starts at version 0 again: its version proves nothing."""
    zombie, other = two
    for member in two:
        change_store(member.store, *changes)
    lock = f"{free.paths.root}/lock/{P}"
    free.store.ensure(f"{free.paths.root}/lock")
    zombie.store.create(lock, ephemeral=True)
    held = zombie.claim(0)
    assert zombie.commit(held, 100, Blind)
    world.expire(zombie.store)
    other.store.create(lock, ephemeral=True)
    taken = other.claim(held.version)
    assert other.commit(taken, 150, Blind)
    again(zombie.store.sync)
    zombie.run = membership.register_run(zombie.tree, "woken", zombie.incarnation, [P])
    zombie.commit(held, 667, Blind)
    assert free.checkpoints()[P].record.offset == offset


def test_a_checkpoint_never_goes_back(free: GroupState, two: tuple[Member, Member]) -> None:
    one, _ = two
    held = one.claim(0)
    assert one.commit(held, 10)
    assert not one.commit(held, 9)
    assert one.commit(held, 10)
    assert one.commit(held, 9, Blind)


def test_one_stale_partition_does_not_hold_up_the_others(free: GroupState, two: tuple[Member, Member]) -> None:
    one, other = two
    names = [f"flights:{i}" for i in range(250)]
    for name in names:
        free.store.create(free.paths.own(name), encode(Own()))
    held = {n: claim_one(one.tree, one.incarnation, n, 0) for n in names}
    stale = {names[3], names[120], names[121], names[249]}
    for name in stale:
        claim_one(other.tree, other.incarnation, name, 1)
    entries = [Entry(o, Checkpoint(offset=7, token=o.token, run_id="r")) for o in held.values()]
    done = write_checkpoints(one.tree, one.run, entries)
    assert {n for n, conflict in done.items() if conflict} == stale
    assert set(free.checkpoints()) == set(names) - stale


# --- lost replies


def test_without_reading_back_an_applied_claim_is_taken_for_a_lost_one(
    world: World, free: GroupState, two: tuple[Member, Member]
) -> None:
    one, _ = two
    world.lose(one.store, "reply")
    drop_resolving(one.store)
    with pytest.raises(NotOwner):
        one.claim(0)
    assert one.store.wait_active(LONG)
    assert owner(free) == one.incarnation, "owned, and its owner does not know"


def test_a_claim_whose_reply_was_lost_and_that_was_overtaken_is_not_mine(
    world: World, free: GroupState, two: tuple[Member, Member]
) -> None:
    one, other = two
    inner = one.store.multi

    def multi(ops: Sequence[Op]) -> tuple[Node | None, ...]:
        one.store.multi = inner  # type: ignore[method-assign]
        world.lose(one.store, "request")
        try:
            return inner(ops)
        finally:
            other.claim(0)

    one.store.multi = multi  # type: ignore[method-assign]
    with pytest.raises(NotOwner):
        one.claim(0)
    assert owner(free) == other.incarnation


def test_a_reply_that_cannot_be_read_back_stays_unknown(
    world: World, free: GroupState, two: tuple[Member, Member]
) -> None:
    one, _ = two
    store: Store = one.store
    inner = store.multi
    store.call_timeout = 0.3  # type: ignore[attr-defined]

    def multi(ops: Sequence[Op]) -> tuple[Node | None, ...]:
        world.lose(store, "reply")
        try:
            return inner(ops)
        finally:
            world.disconnect(store)

    store.multi = multi  # type: ignore[method-assign]
    store.wait_active = lambda timeout: False  # type: ignore[method-assign]
    with pytest.raises(Unknown, match="cannot be read back now"):
        one.claim(0)
    world.reconnect(store)
