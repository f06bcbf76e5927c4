"""The lease race's warning and its cure, in virtual time, as docs/protocols.md shows them."""

import pytest

from benchmarks.hopping import LATENESS, LONG, RACES, Hops, compute_share, count_hops, draw, format_hops, play
from benchmarks.tally import Change, Phase, count_taken, judge
from benchmarks.virtual import Case, measure

LATE = (0.0, 1.0, 5.0)


@pytest.fixture(scope="module")
def hops() -> list[Hops]:
    small = {"partitions": 30, "workers": 5, "lease": 60.0}
    played = [play(how, late, **small) for how in RACES for late in LATE]  # type: ignore[arg-type]
    return played + [play(how, together=True, **small) for how in RACES]  # type: ignore[arg-type]


def test_the_later_answers_are_the_more_partitions_hop_and_none_where_counts_are_announced(hops: list[Hops]) -> None:
    shares = {how: [one.share for one in hops if one.decide == how and not one.together] for how in RACES}
    assert shares["fastest"] == sorted(set(shares["fastest"]))
    assert shares["fastest"][0] == 0
    assert shares["fastest"][-1] > 0.5
    assert [one.jumps for one in hops if one.decide == "announced"] == [((0.0, 0),)] * (len(LATE) + 1)


def test_challenges_at_one_moment_move_every_partition_in_each_lease_time(hops: list[Hops]) -> None:
    assert [one.share for one in hops if one.together] == [1, 0]


def test_the_rule_alone_gives_the_figures_that_were_published_beside_it() -> None:
    """100 partitions, 10 workers: 0, 35, 62, 74, 84 % at 0, 1, 2.5, 5, 15 delays, and all at one moment."""
    shares = [compute_share(late) for late in LATENESS]
    assert [round(100 * share) for share in shares] == pytest.approx([0, 35, 62, 74, 84], abs=1.5)
    assert compute_share(0, together=True) > 0.98


def test_the_table_and_the_picture_show_both(hops: list[Hops], tmp_path) -> None:  # type: ignore[no-untyped-def]
    shown = format_hops(hops, [Hops("fastest", 5.0, 0.625)]).splitlines()
    assert shown[0].split(" | ")[1:] == [
        *("by the rule alone", LONG, "fastest", "announced", "fastest, real server", "announced, real server |"),
    ]
    assert shown[2] == "| 0 | 0 % |  | 0 % | 0 % |  |  |"
    assert shown[-2].endswith("| 0 % | 62 % |  |")
    assert shown[-1].endswith("all challenged at once | 99 % |  | 100 % | 0 % |  |  |")
    draw(hops, [], tmp_path / "race.png", 5.0)
    assert (tmp_path / "race.png").stat().st_size > 10_000


def test_what_changes_owner_and_comes_back_within_a_lease_time_is_a_jump_and_no_hop() -> None:
    owners = ((1, "a@1"), (12, None), (13, "b@1"), (17, "a@1"), (25, "b@1"))
    changes = [Change(at, "p", owner, version) for version, (at, owner) in enumerate(owners)]
    share, jumps = count_hops(changes, ["p", "q"], 10.0, 2, 10.0)
    assert share == 0.25
    assert jumps == ((0.0, 0), (3.0, 1), (7.0, 2), (15.0, 3))


def test_a_phase_counts_moves_and_the_time_without_a_living_owner() -> None:
    changes = [
        *(Change(1.0, p, "a@1", 1) for p in "pqr"),
        Change(10.0, "p", None, 2),
        Change(12.0, "p", "b@1", 3),
        Change(13.0, "q", "a@2", 2),
        Change(14.0, "r", "b@1", 2),
        Change(30.0, "r", "c@1", 3),
    ]
    phase = judge(changes, "pqr", 10.0, 20.0)
    assert (phase.seconds, phase.moves, phase.unowned) == (4.0, 2, 2.0)
    assert judge(changes, "pqr", 10.0, 20.0, {"a"}).unowned == 2.0 + 10.0 + 4.0


def test_a_release_that_was_heard_of_after_the_claim_that_followed_it_is_a_release() -> None:
    """Threads: 2 of 30 partitions seemed to be taken from a living worker, and to have no owner from then on."""
    changes = [Change(1.0, "p", "a@1", 1), Change(10.5, "p", "b@1", 3), Change(11.0, "p", None, 2)]
    assert count_taken(changes) == 0
    assert judge(changes, "p", 10.0, 20.0) == Phase(0.5, 1, 0.0)
    assert count_taken([changes[0], changes[1]]) == 1
    assert count_taken([changes[0], changes[1]], {"a"}) == 0


def test_a_row_holds_what_a_protocol_does() -> None:
    row = measure(Case("race, announced", "race", {}), 30)
    assert row.fill < 15
    assert (row.join.moves, row.kill.moves) == row.fewest == (2, 3)
    assert (row.idle, row.late, row.doubly) == (0, 0, 0)
    assert 10 < row.kill.seconds < 15
    assert row.asked[0] < 15 * 60, "an idle worker reads less than 15 nodes a second"
    assert row.asked[1] == 0
