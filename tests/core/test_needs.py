"""What needs an operator: the pure function, cause by cause. Healthy groups have no need; what lasts too long is one."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.coordination.records import Live, Parked
from rota.core.values import Worker
from rota.dataplane.ports import Withheld
from rota.face import memory as face_memory
from rota.face.causes import BEHIND, CAUSES, FAILING, IDLE, RANKS, SETTLE
from rota.face.dagster_state import DagsterSeen, FailedRuns, SensorSeen
from rota.face.memory import Memory
from rota.face.need import join_needs
from rota.face.needs import find_needs
from rota.face.seen import OPEN, Seen
from rota.ledger.values import Position
from rota.run.eligibility import Facts
from tests.core.seen_group import (
    ALONE,
    DRAINED,
    FACTS,
    FAILED,
    FREE,
    GONE,
    NEEDS,
    RUN,
    SENSORS,
    W1,
    W2,
    WELL,
    P,
    commit_to,
    dagster,
    facts,
    observe_over,
    pipeline,
)

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_parks_are_distinguished_by_their_reason_alone() -> None:
    """The number of failures does not distinguish causes."""
    parks = [FAILED.model_copy(update={"failures": n, "retry_at": None}) for n in (1, 3)]
    found = [find_needs(facts(parked={"p:a": one}))[0] for one in parks]
    assert found[0][0].why != found[1][0].why
    assert [one.which for (one,) in found] == ["the disk is full"] * 2


HEALTHY = {
    "idle": (WELL, 10_000.0),
    "a slow batch": (replace(facts(runs=(RUN,)), pipelines=(replace(P, ends={"p:a": (5, 9)}),)), BEHIND - 1),
    "new files, a run comes": (pipeline(ends={"p:a": (5, 9)}), IDLE - 1),
    "an owner was killed a moment ago": (facts(**GONE), SETTLE - 1),
    "a hand-over": (facts(**FREE), SETTLE - 1),
    "an owner waits for its run": (facts(targets={"w1": frozenset({"p:a", "p:b"}), "w2": frozenset()}), 120.0),
    "the first minute": (replace(facts(lives={}), workers=()), SETTLE - 1),
    "a worker is drained and the other has room": (
        replace(WELL, workers=(Worker("w1", W1), Worker("w2", W2, state="draining"))),
        10_000.0,
    ),
    "a partition failed once": (facts(parked={"p:a": FAILED}), 10_000.0),
    "new partitions": (pipeline(waiting=("p:c",)), SETTLE - 1),
    "a transaction that was just opened": (pipeline(withheld={"p:a": Withheld(62, "open since 62")}), OPEN - 1),
    "a Spark starts again": (replace(WELL, silent={"w1": "refused"}), SETTLE - 1),
    "rebalances that no sensor requests any more": (
        dagster(rebalances={"default": FailedRuns(3, "x", ago=BEHIND)}),
        10.0,
    ),
    "a rebalance failed": (dagster(rebalances={"default": FailedRuns(1, "boom")}), 10_000.0),
    "a run failed": (dagster(failed={"p": [FailedRuns(1, "boom")]}), 10_000.0),
    "Dagster restarts": (replace(WELL, dagster=DagsterSeen("does not answer")), SETTLE - 1),
    "a code location that is reloaded": (dagster(unserved=("p",)), SETTLE - 1),
    "a code server that was killed": (dagster(locations={"here": "it is not loaded"}), SETTLE - 1),
    "a sensor failed once": (dagster(sensors=(SensorSeen("p__backlog", failing=1.0, why="x"),)), FAILING - 2),
    "a target that is written anew": (replace(WELL, records={"/rota/default/assign/w1": "unreadable"}), SETTLE - 1),
    "a worker that comes back": (
        replace(facts(**GONE), grace=60.0, workers=ALONE, absences={"w9": 1000.0}),
        SETTLE + 59,
    ),
    "another token a moment ago": (pipeline(positions={"p:a": Position(5, 99, "t")}), SETTLE - 1),
    "a table that is not there yet": (pipeline(positions={"p:a": Position(None, None, None)}, refusal=""), SETTLE - 1),
    "lag that falls": (replace(facts(runs=(RUN,)), pipelines=(replace(P, ends={"p:b": (6, 7)}),)), BEHIND - 1),
}


@pytest.mark.parametrize(
    "case", ["runs that fail", "a sensor that is off", "an unserved pipeline", "a table that cannot be read"]
)
def test_what_stops_a_pipelines_runs_is_reported_once(case: str) -> None:
    """An alert named the failed runs, and two minutes later a second one that no run works: two alerts for one cause."""
    seen, _, cause, _ = NEEDS[case]
    behind = replace(seen, pipelines=(replace(seen.pipelines[0], ends={"p:a": (5, 9)}),))
    if cause == "off":
        behind = replace(behind, dagster=DagsterSeen(sensors=(SensorSeen("p__backlog", on=False, pipeline="p"),)))
    mine = [need for need in observe_over(behind, BEHIND / 2, BEHIND) if need.person]
    assert [need.cause for need in mine] == [cause]


@pytest.mark.parametrize("times", [1, 3])
def test_a_source_that_cannot_be_read_explains_its_sensor_and_its_runs(times: int) -> None:
    """A wrong server was listed under "needs an operator" and under "heals by itself" at once."""
    why = "topic t of Kafka at h:1: refused"
    fails = SensorSeen("p__backlog", failing=SETTLE, why=why, pipeline="p")
    seen = replace(pipeline(fault=why), dagster=DagsterSeen(sensors=(fails,), failed={"p": [FailedRuns(times, why)]}))
    assert [(need.name, need.cause, need.person) for need in observe_over(seen)] == [("p", "source", True)]
    young = replace(seen, dagster=DagsterSeen(sensors=(replace(fails, failing=1.0),)))
    assert [(need.cause, need.person) for need in observe_over(young)] == [("source", False)]
    assert {need.cause for need in observe_over(replace(seen, pipelines=(P,)))} == {"fails", "runs"}, "of another fault"


@pytest.mark.parametrize("case", ["a foreign table", "an older ZooKeeper"])
def test_runs_that_fail_because_the_table_refuses_are_one_need(case: str) -> None:
    """After `rota adopt` the last runs have still failed: a second alert came, and was over with the next run."""
    failed = DagsterSeen(failed={"p": [FailedRuns(4, "w9's. rota adopt", "ForeignTable")]})
    seen = replace(NEEDS[case][0], dagster=failed)
    assert [need.cause for need in observe_over(seen, BEHIND / 2, BEHIND) if need.person] == [NEEDS[case][2]]
    adopted = replace(WELL, dagster=failed)
    assert not [need for need in observe_over(adopted, IDLE - 1) if need.person]
    assert [need.cause for need in observe_over(adopted, IDLE) if need.person] == ["runs"], (
        "it still refuses, for an unknown reason"
    )


@pytest.mark.parametrize("case", HEALTHY)
def test_what_heals_itself_needs_no_operator(case: str) -> None:
    seen, seconds = HEALTHY[case]
    assert not [need.line for need in observe_over(seen, seconds / 2, seconds) if need.person]


@pytest.mark.parametrize("case", NEEDS)
def test_what_does_not_heal_needs_an_operator_and_names_the_step(case: str) -> None:
    seen, seconds, cause, words = NEEDS[case]
    if seconds:
        assert not [need for need in observe_over(seen) if need.person and need.cause == cause], "not at once"
    mine = [need for need in observe_over(seen, seconds / 2, seconds) if need.person]
    assert [need.cause for need in mine] == [cause], [need.line for need in mine]
    assert words in mine[0].line
    assert not [need for need in observe_over(WELL, seconds) if need.cause == cause], "and is over when it is over"


@pytest.mark.parametrize(
    ("case", "step"),
    [
        ("the owner and its target are gone, the rest is full", "raise a cap"),
        ("all drained", "`rota uncordon` one"),
        ("no label", "start a worker with that label"),
    ],
)
def test_the_step_is_the_one_that_makes_a_worker_able(case: str, step: str) -> None:
    (need,) = [need for need in observe_over(NEEDS[case][0], SETTLE) if need.person]
    assert step in need.line


def test_every_cause_is_documented_and_played_here() -> None:
    said = PROTOCOL.read_text().split("The `cause` of a need is one of ")[1].split("\n\n")[0]
    documented = set(re.findall(r"`([a-z ]+)`", said))
    assert documented == {cause for _, _, cause, _ in NEEDS.values()} | {"failed", "growing"}
    assert documented == {of.cause or row for row, of in CAUSES.items()}
    played = {need.row for seen, *_ in (*NEEDS.values(), *HEALTHY.values()) for need in find_needs(seen)[0]}
    assert CAUSES.keys() - played == {"growing", "still", "refused runs"}, "played by tests of their own"


def test_a_row_of_the_table_explains_rows_below_it_only() -> None:
    for row, of in CAUSES.items():
        assert all(RANKS[row] < RANKS[other] for other in (*of.explains, *of.covers)), row


def test_a_need_begins_anew_once_it_was_away() -> None:
    _, memory = find_needs(facts(**FREE))
    _, memory = find_needs(replace(WELL, now=1040.0), memory)
    needs, _ = find_needs(replace(facts(**FREE), now=1050.0), memory)
    assert [(need.since, need.person) for need in needs] == [(1050.0, False)]


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_clock_that_is_put_forward_makes_no_need_older(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper's: a partition that was without an owner for seconds had been so for an hour."""
    if not guarded:
        monkeypatch.setattr(face_memory, "MAX_GAP", float("inf"))
    _, memory = find_needs(facts(**FREE))
    free = replace(facts(**FREE), now=4600.0)
    (need,), memory = find_needs(free, memory)
    assert need.person == (not guarded)
    (need,), _ = find_needs(replace(free, now=4600.0 + SETTLE), memory)
    assert need.person, "it goes on to grow older"


def test_a_taker_has_its_own_time_from_when_the_partition_is_given_to_it() -> None:
    """In a healthy group's first minute on a busy machine a rebalance and a claim together took longer than one of them
    may."""

    def look_at(seen: Seen, now: float, memory: Memory) -> tuple[bool, Memory]:
        needs, kept = find_needs(replace(seen, now=now), memory)
        return any(need.person for need in needs), kept

    free = facts(**FREE)
    nobodys = replace(free, facts=replace(free.facts, targets={"w1": frozenset({"p:a"})}))
    _, memory = look_at(nobodys, 1000.0, Memory())
    called, memory = look_at(nobodys, 1000.0 + SETTLE - 1, memory)
    assert not called
    given = 1000.0 + SETTLE
    called, memory = look_at(free, given, memory)
    assert not called, "w2 could not claim it before"
    assert not look_at(free, given + SETTLE - 1, memory)[0]
    assert look_at(free, given + SETTLE, memory)[0]
    assert look_at(nobodys, 1000.0 + 2 * SETTLE, Memory(dict.fromkeys(find_needs(nobodys)[1].since, 1000.0)))[0]


def test_what_keeps_work_waiting_is_due_when_the_work_has_waited_long_enough() -> None:
    """Ticks failed now and then, because Dagster's storage was locked: each failure hid that no run works, and began its own
    time. The need was reported after 208 s."""
    waits, memory = pipeline(ends={"p:a": (5, 9)}), Memory()
    locked = SensorSeen("p__backlog", failing=1.0, why="database is locked", pipeline="p")
    fails = replace(waits, dagster=DagsterSeen(sensors=(locked,)))
    reported: list[tuple[float, str]] = []
    for at, seen in ((0.0, waits), (30.0, fails), (40.0, waits), (IDLE - 1, fails), (IDLE, fails), (IDLE + 9, waits)):
        needs, memory = find_needs(replace(seen, now=1000.0 + at), memory)
        reported += [(at, need.cause) for need in needs if need.person]
    assert reported == [(IDLE, "fails"), (IDLE + 9, "idle")]


def test_after_a_sensor_is_turned_on_its_run_has_time_before_the_alert() -> None:
    """Work that had waited for long was reported at once, although an operator had just repaired its cause."""
    waits, memory = pipeline(ends={"p:a": (5, 9)}), Memory()
    off = replace(waits, dagster=DagsterSeen(sensors=(SensorSeen("p__backlog", on=False, pipeline="p"),)))
    reported: list[tuple[float, str]] = []
    for at, seen in ((0.0, off), (500.0, off), (510.0, waits), (500.0 + IDLE, waits), (510.0 + IDLE, waits)):
        needs, memory = find_needs(replace(seen, now=1000.0 + at), memory)
        reported += [(at, need.cause) for need in needs if need.person]
    assert reported == [(0.0, "off"), (500.0, "off"), (510.0 + IDLE, "idle")]


def test_a_commit_begins_the_wait_for_a_run_anew() -> None:
    """A pipeline whose runs take turns is not one without runs."""
    waits = pipeline(ends={"p:a": (5, 9), "p:b": (6, 6)})
    _, memory = find_needs(waits)
    moved = replace(
        waits,
        now=1000.0 + IDLE,
        facts=replace(FACTS, checkpoints={**FACTS.checkpoints, "p:b": commit_to(7, mzxid=9)}),
    )
    assert not [need for need in find_needs(moved, memory)[0] if need.person]


def test_lag_that_grows_is_reported_and_sends_no_alert() -> None:
    memory = Memory()
    for seconds in range(0, int(BEHIND), 60):
        _, memory = find_needs(replace(pipeline(ends={"p:a": (5, 9)}), now=1000.0 + seconds), memory)
    grown = replace(pipeline(ends={"p:a": (6, 30)}), now=1000.0 + BEHIND)
    grown = replace(
        grown, facts=replace(FACTS, runs=(RUN,), checkpoints={**FACTS.checkpoints, "p:a": commit_to(6, mzxid=9)})
    )
    (need,) = (one for one in find_needs(grown, memory)[0] if one.cause == "growing")
    assert (need.person, need.step) == (False, "add a worker")


def test_many_partitions_with_one_cause_are_one_line() -> None:
    many = tuple(f"p:{n}" for n in range(50))
    free = Facts(partitions=many, lives={W1: Live()}, now=1000.0)
    needs = observe_over(replace(WELL, facts=free, workers=DRAINED[:1], pipelines=()), SETTLE)
    assert len(needs) == 50
    (one,) = join_needs(needs)
    assert "and 49 more" in one.line


@pytest.mark.parametrize("error", ["TooManyBadRecords", ""], ids=["of one class", "of two reasons"])
def test_parked_partitions_share_a_line_by_their_cause_not_by_the_files_they_name(error: str) -> None:
    """Three partitions with one cause were twelve lines of `rota status`: each reason named a file of its own."""
    parks = {p: Parked(reason=f"{p} has bad records", error=error, retry_at=None) for p in FACTS.partitions}
    parked, _ = find_needs(
        facts(parked={p: one.model_copy(update={"reason": f"x-{p[2:]}"}) for p, one in parks.items()})
    )
    assert len(join_needs(parked)) == (1 if error else 2)


@given(st.sampled_from(sorted(NEEDS)), st.lists(st.floats(0, 2000), max_size=6), st.floats(-500, 5000))
def test_whatever_the_clock_does_a_need_is_never_older_than_what_was_seen(
    case: str, steps: list[float], back: float
) -> None:
    seen, memory, now = NEEDS[case][0], Memory(), WELL.now
    for step in [*steps, back]:
        needs, memory = find_needs(replace(seen, now=now), memory)
        assert all(need.since <= now for need in needs)
        now += step


def test_a_sensor_of_one_pipeline_is_that_pipelines_need() -> None:
    """`rota status --check --pipeline a` exited with 1 because the landing folder of b was gone."""
    off = SensorSeen("q__backlog", on=False, pipeline="q")
    fails = SensorSeen("q__checks", failing=50.0, why="no folder", pipeline="q")
    lines = {
        need.cause: (need.kind, need.name, need.line) for need in observe_over(dagster(sensors=(*SENSORS, off, fails)))
    }
    assert lines == {
        "off": ("pipeline", "q", "pipeline q: sensor q__backlog: it is turned off: turn it on, on Dagster's page"),
        "fails": ("pipeline", "q", "pipeline q: sensor q__checks: no folder"),
    }
