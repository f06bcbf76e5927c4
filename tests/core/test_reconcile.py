"""The laws of the reconcile machine, one by one, on looks written by hand."""

from dataclasses import replace

import pytest

from rota.core.reconcile import (
    Announce,
    Claim,
    Event,
    Exit,
    Instruction,
    Join,
    Joined,
    LeaveRequested,
    Lost,
    Machine,
    Note,
    Observed,
    Owner,
    Release,
    State,
    Suspended,
    Ticked,
    assigned,
)
from tests.ablations import NO_CAP, NO_DRAIN, no_proof

ME, OLD, OTHER = "w1@0000000000000002", "w1@0000000000000001", "w2@0000000000000003"
FREE = Owner(None, 4)


def look(now: float = 1.0, target: str | None = "", **more: object) -> Observed:
    """A look at `now`; `target` names partitions of one letter each."""
    names = None if target is None else frozenset(target)
    plain = Observed(now, now, 1, None, names, {}, frozenset({ME, OTHER}), ME, frozenset())
    return replace(plain, **more)  # type: ignore[arg-type]


def play(*events: Event, machine: Machine = assigned) -> tuple[State, list[tuple[Instruction, ...]]]:
    """The state after the events, and what each of them instructed."""
    state, said = State("w1", 120.0), []
    for event in (Joined(ME), *events):
        state, instructions = machine(state, event)
        said.append(instructions)
    return state, said[1:]


@pytest.mark.parametrize(
    ("owner", "live", "instruction"),
    [
        (FREE, {ME}, Claim("a", 4, "free", None)),
        (Owner(OTHER, 4), {ME}, Claim("a", 4, "gone", OTHER)),
        (Owner(OLD, 4), {ME, OLD}, Claim("a", 4, "older", OLD)),
        (Owner(OTHER, 4), {ME, OTHER}, Note("wait", "a", f"owner={OTHER}")),
    ],
)
def test_from_which_owner_it_claims(owner: Owner, live: set[str], instruction: Instruction) -> None:
    _, said = play(look(target="a", owners={"a": owner}, live=frozenset(live)))
    assert said == [(instruction,)]


def test_nothing_is_claimed_that_the_target_does_not_name_or_that_was_not_read() -> None:
    _, said = play(look(target="b", owners={"a": FREE}), look(target=None, owners={"a": FREE}))
    assert said == [(), ()]


def test_a_live_owner_is_forced_after_max_shutdown_and_the_note_comes_once() -> None:
    stuck = {"a": Owner(OTHER, 4)}
    _, said = play(*(look(now, "a", owners=stuck) for now in (1.0, 60.0, 120.9, 121.0)))
    assert [type(i[0]).__name__ if i else "" for i in said] == ["Note", "", "", "Claim"]
    assert said[-1] == (Claim("a", 4, "forced", OTHER),)


def test_a_worker_that_leaves_does_not_wait_for_ever_for_what_cannot_be_read() -> None:
    mine = look(target="a", owners={"a": Owner(ME, 4)})
    _, said = play(mine, LeaveRequested(2.0), *(look(now, "", owners={}) for now in (3.0, 121.9, 122.0)))
    assert said[:4] == [(), (Announce(),), (), ()]
    assert said[4] == (Exit(clean=False, reason="left: nothing is known of a"),)


@pytest.mark.parametrize(
    "breach",
    [
        look(60.0, "a", owners={"a": Owner(OTHER, 5)}),  # the record moved
        look(60.0, "", owners={"a": Owner(OTHER, 4)}, epoch=2, previous=1),  # the target dropped it
        look(60.0, None, owners={"a": Owner(OTHER, 4)}),  # the target could not be read
    ],
)
def test_a_break_starts_the_wait_anew(breach: Observed) -> None:
    stuck = {"a": Owner(OTHER, 4)}
    again = look(121.0, "a", owners=stuck, epoch=3, previous=2)
    _, said = play(look(1.0, "a", owners=stuck), breach, again)
    assert not any(isinstance(i, Claim) for i in said[-1])


def test_two_publications_between_two_looks_may_hide_a_break() -> None:
    stuck = {"a": Owner(OTHER, 4)}
    one = [look(1.0, "a", owners=stuck, epoch=1), look(121.0, "a", owners=stuck, epoch=2, previous=1)]
    two = [look(1.0, "a", owners=stuck, epoch=1), look(121.0, "a", owners=stuck, epoch=3, previous=2)]
    assert isinstance(play(*one)[1][-1][0], Claim)
    assert not play(*two)[1][-1]


def test_a_revoked_partition_is_released_once_no_run_consumes_it() -> None:
    mine = {"a": Owner(ME, 5), "b": Owner(ME, 6)}
    held = look(1.0, "ab", owners=mine)
    busy = look(2.0, "b", owners=mine, busy=frozenset("ab"))
    _, said = play(held, busy, busy, look(3.0, "b", owners=mine, busy=frozenset("b")))
    assert said == [(), (Note("drain", "a", "a run consumes it"),), (), (Release("a", 5, "revoked"),)]
    _, said = play(held, busy, machine=NO_DRAIN)
    assert said[-1] == (Release("a", 5, "revoked"),)


FULL = "as many are held as may be"


def test_nothing_is_claimed_beyond_the_cap_and_what_drains_still_counts() -> None:
    mine, held = Owner(ME, 5), look(1.0, "ab", owners={"a": Owner(ME, 5), "b": Owner(ME, 6)}, cap=2)
    swap = look(2.0, "bc", owners={"a": mine, "b": Owner(ME, 6), "c": FREE}, cap=2, busy=frozenset("a"))
    done = look(3.0, "bc", owners={"a": mine, "c": FREE}, cap=2)  # b is settled: it was not read again
    free = look(4.0, "bc", owners={"a": Owner(None, 6), "c": FREE}, cap=2)
    _, said = play(held, swap, swap, done, free)
    assert said[1] == (Note("wait", "c", FULL), Note("drain", "a", "a run consumes it"))
    assert said[2:4] == [(), (Release("a", 5, "revoked"),)], "said once; what is being released is still held"
    assert said[4] == (Claim("c", 4, "free", None),)
    _, said = play(held, swap, machine=NO_CAP)
    assert said[-1][0] == Claim("c", 4, "free", None)


def test_a_claim_that_was_tried_counts_until_it_is_known_to_have_failed() -> None:
    two = {"a": FREE, "b": FREE}
    state, said = play(look(1.0, "ab", owners=two, cap=1), look(2.0, "ab", owners={"b": FREE}, cap=1))
    assert said == [(Claim("a", 4, "free", None), Note("wait", "b", FULL)), ()]
    _, instructions = assigned(state, look(3.0, "b", owners={"a": Owner(OTHER, 5), "b": FREE}, cap=1))
    assert instructions == (Claim("b", 4, "free", None),)


def test_the_wait_for_a_live_owner_goes_on_while_there_is_no_room() -> None:
    stuck = {"a": Owner(ME, 5), "b": Owner(OTHER, 4)}
    _, said = play(
        *(look(now, "ab", owners=stuck, cap=1) for now in (1.0, 121.0)), look(122.0, "ab", owners=stuck, cap=2)
    )
    assert said == [(Note("wait", "b", f"owner={OTHER}"),), (), (Claim("b", 4, "forced", OTHER),)]


def test_a_target_that_cannot_be_read_takes_nothing_away() -> None:
    _, said = play(look(target=None, owners={"a": Owner(ME, 5)}))
    assert said == [()]


def test_after_a_suspension_only_a_look_begun_later_counts() -> None:
    free = {"a": FREE}
    stale = replace(look(9.0, "a", owners=free), began=2.0)
    _, said = play(Suspended(3.0), stale, look(10.0, "a", owners=free))
    assert said == [(), (), (Claim("a", 4, "free", None),)]
    _, said = play(Suspended(3.0), stale, machine=no_proof)
    assert said[-1] == (Claim("a", 4, "free", None),)


def test_a_lost_session_gives_everything_up_and_joins_anew() -> None:
    state, said = play(look(1.0, "a", owners={"a": Owner(ME, 5)}), Lost())
    assert said[-1] == (Join("the session is lost"),)
    assert not state.held
    assert state.incarnation is None
    _, said = play(look(1.0, "a", owners={"a": FREE}, live=frozenset({OTHER})))
    assert said == [(Join("its live node is gone"),)]


def test_the_older_incarnation_gives_up_and_writes_nothing_more() -> None:
    newer = "w1@0000000000000009"
    mine = {"a": Owner(ME, 5), "b": FREE}
    both = look(1.0, "b", owners=mine, live=frozenset({ME, newer}), newest=newer)
    _, said = play(both, look(2.0, "b", owners=mine))
    assert said == [(Exit(False, f"a newer incarnation of this id is live: {newer}"),), ()]


def test_leaving_releases_what_the_target_drops_and_ends_when_nothing_is_held() -> None:
    mine = {"a": Owner(ME, 5), "b": Owner(ME, 6), "c": FREE}
    gone = {"a": Owner(None, 6), "b": Owner(ME, 6)}
    state, said = play(
        look(1.0, "abc", owners={"a": Owner(ME, 5), "b": Owner(ME, 6)}),
        LeaveRequested(2.0),
        look(3.0, "bc", owners=mine),
        look(4.0, "", owners=gone),
        look(5.0, "", owners={"b": Owner(None, 7)}),
    )
    assert said[1:4] == [(Announce(),), (Release("a", 5, "revoked"),), (Release("b", 6, "revoked"),)]
    assert said[4] == (Exit(True, "left: everything is handed over"),)
    assert state.done


def test_leaving_releases_everything_after_max_shutdown_even_under_a_run() -> None:
    mine = look(122.0, "a", owners={"a": Owner(ME, 5)}, busy=frozenset("a"))
    _, said = play(replace(mine, now=1.0), LeaveRequested(2.0), replace(mine, now=121.9), mine)
    assert said[-2:] == [(), (Release("a", 5, "leaving"),)]


def test_a_second_request_to_leave_is_a_request_to_hurry() -> None:
    mine = look(3.0, "a", owners={"a": Owner(ME, 5)}, busy=frozenset("a"))
    _, said = play(
        replace(mine, now=1.0),
        LeaveRequested(2.0),
        mine,
        LeaveRequested(4.0, hurry=True),
        replace(mine, began=5.0, now=5.0),
    )
    assert said[2:] == [(), (), (Release("a", 5, "leaving"),)]


def test_leaving_ends_without_zookeeper_too() -> None:
    held = look(1.0, "a", owners={"a": Owner(ME, 5)})
    _, said = play(held, LeaveRequested(2.0), Suspended(3.0), Ticked(100.0), Ticked(122.0))
    assert said[-2] == ()
    assert isinstance(said[-1][0], Exit)
    assert isinstance(play(held, LeaveRequested(2.0), Lost())[1][-1][0], Exit)


def test_a_claim_whose_answer_is_unknown_is_still_held() -> None:
    state, _ = play(look(1.0, "a", owners={"a": FREE}), look(2.0, "", owners={}))
    assert state.interest(frozenset("b")) == frozenset("ab")
