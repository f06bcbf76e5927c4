"""The sensor of the checks against a real ZooKeeper: it reports what changed in the whole pipeline, by any run."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster import DagsterRunStatus as Status

from rota.coordination.alone import found_own_records
from rota.coordination.parking import park, unpark
from rota.dagster.assets import checks
from rota.dagster.assets.check_results import repeat
from rota.dagster.assets.checks import read_evaluation
from rota.dagster.assets.metadata import describe_owner
from rota.dagster.assets.names import Names
from rota.dagster.assets.pipeline_checks import Memory, load_memory
from rota.dagster.sensors import owners
from rota.dagster.sensors.checks import MAX_PAUSE, MIN_PAUSE, PAUSE_FACTOR, choose_pause
from rota.errors import EnvironmentFailed, ForeignTable
from rota.face.causes import SETTLE
from rota.face.health import describe_refusal
from rota.ids import WORKER_TAG
from rota.ledger.ledger import Ledger
from rota.ledger.values import LogEntry
from tests.claiming import claim_one
from tests.core.seen_group import settle_within
from tests.face.desk import Desk, cancel_check, list_counted, ready

names = Names()


@dg.op
def consume() -> Iterator[object]:
    for asset in names.consumed("p"):
        yield dg.AssetMaterialization(asset, partition="p:a")
    yield dg.Output(None)


@dg.job
def trickle() -> None:
    consume()


def report(desk: Desk, cursor: str | None = None) -> tuple[dict[str, tuple[bool, str]], str | None]:
    """The report of a tick of the checks' sensor, as the daemon stores it: name -> (passed, severity); and the cursor."""
    found = desk.tick("p__checks", cursor)
    assert isinstance(found, dg.SensorResult)
    reported = [event for event in found.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    for event in reported:
        assert event.asset_check_key in desk.repository.asset_graph.asset_check_keys
        desk.instance.report_runless_asset_event(event)
    return {one.check_name: (one.passed, one.severity.value) for one in reported}, found.cursor


def test_an_idle_pipeline_reports_what_is_parked_ignored_or_unowned(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run looks: an idle pipeline has no runs."""
    ready(desk)
    first, cursor = report(desk)
    assert set(first) == {spec.name for spec in checks.list_checks(desk.catalog.pipelines["p"], names)}
    assert all(passed for passed, _ in first.values())
    assert report(desk, cursor)[0] == {}, "what the page shows is not reported again"
    park(desk.tree, "p:a", "the transform raised", retry_after=600)  # later than this test ends
    assert report(desk, cursor)[0] == {"none_parked": (False, "WARN")}
    park(desk.tree, "p:b", "the schema is wrong")
    (desk.folder / "p" / "beside.json").write_text("{}")
    assert report(desk, cursor)[0] == {"none_parked": (False, "ERROR"), "none_left_out": (False, "ERROR")}
    for store in desk.stores[1:]:
        store.close()
    reported, cursor = report(desk, cursor)
    assert reported == {}, "a hand-over has its time"
    assert load_memory(cursor).due == pytest.approx(SETTLE)
    settle_within(0.0, monkeypatch)
    assert report(desk, cursor)[0] == {"all_owned": (False, "ERROR")}


def test_where_workers_decide_alone_parked_and_unowned_partitions_are_reported_and_their_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No controller publishes a target: the agents decide the owners."""
    settle_within(0.0, monkeypatch)
    desk.land("a", "b")
    desk.tree.found(protocol="claim")
    desk.tree.grow("p", ["a", "b"])
    found_own_records(desk.tree, ("p:a", "p:b"))
    reported, cursor = report(desk)
    assert reported["all_owned"] == (False, "ERROR")
    desk.start("w1")
    reported, cursor = report(desk, cursor)
    assert reported == {"all_owned": (True, "ERROR")}
    park(desk.tree, "p:a", "an operator has to look")
    assert report(desk, cursor)[0] == {"none_parked": (False, "ERROR")}
    unpark(desk.tree, "p:a")
    assert report(desk, cursor)[0] == {"none_parked": (True, "ERROR")}
    desk.stores.pop().close()
    reported, cursor = report(desk, cursor)
    assert reported == {"all_owned": (False, "ERROR")}
    desk.start("w2")
    assert report(desk, cursor)[0] == {"all_owned": (True, "ERROR")}
    assert desk.tree.head().record.epoch == 0


def test_under_a_trickle_every_check_is_evaluated_whatever_its_result(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a busy pipeline half of the samples were "Not Evaluated", of a failed check too. Two runs report in turns. The
    run that makes a materialization repeats the checks' last results for it. The ablation makes it only."""
    ready(desk)
    _, cursor = report(desk)
    specs = checks.list_checks(desk.catalog.pipelines["p"], names)
    everything = {spec.name for spec in specs}
    park(desk.tree, "p:b", "the schema is wrong")
    _, cursor = report(desk, cursor)
    before = {spec.key: read_evaluation(desk.instance, spec.key) for spec in specs}

    def make(repeats: bool) -> set[str]:
        assert trickle.execute_in_process(instance=desk.instance).success
        for said in repeat(desk.instance, specs) if repeats else ():
            desk.instance.report_runless_asset_event(said)
        return list_counted(desk.instance, specs)

    assert [make(repeats=True) for _ in range(5)] == 5 * [everything]
    after = {spec.key: read_evaluation(desk.instance, spec.key) for spec in specs}
    for key, last in before.items():
        now = after[key]
        assert last
        assert now
        assert (now[0].passed, now[0].severity, now[0].metadata) == (last[0].passed, last[0].severity, last[0].metadata)
    assert report(desk, cursor)[0] == {}, "what is counted is not reported again"
    assert make(repeats=False) == set()
    assert set(report(desk, cursor)[0]) == everything, "the next tick reports another process's materialization"
    assert list_counted(desk.instance, specs) == everything


def test_a_check_whose_run_was_cancelled_before_it_was_evaluated_is_reported_again(desk: Desk) -> None:
    """Its newest record is of the plan. The sensor failed at it, so that nothing was reported any more."""
    ready(desk)
    _, cursor = report(desk)
    cancel_check(desk.instance, desk.repository, dg.AssetCheckKey(names.records("p"), "none_parked"))
    assert report(desk, cursor)[0] == {"none_parked": (True, "ERROR")}
    assert report(desk, cursor)[0] == {}


def test_a_look_that_takes_long_is_followed_by_a_longer_pause(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 100,000 partitions an observation takes seconds, every 30 s."""
    ready(desk)
    now, took = [1e9], 5.0

    def tick_clock() -> float:
        now[0] += took / 2
        return now[0]

    monkeypatch.setattr("rota.dagster.sensors.checks.time", SimpleNamespace(time=tick_clock))
    monkeypatch.setattr("rota.dagster.sensors.checks.PAUSE_FACTOR", 20)
    monkeypatch.setattr("rota.dagster.sensors.checks.MAX_PAUSE", 1000.0)
    _, cursor = report(desk)
    now[0] += 20 * took / 2 - took
    skipped = desk.tick("p__checks", cursor)
    assert isinstance(skipped, dg.SkipReason)
    assert "the last observation took 2.5 s" in str(skipped.skip_message)
    now[0] += took
    report(desk, cursor)
    now[0] = 1e8
    report(desk, cursor)


def test_no_look_is_so_long_that_the_next_one_is_late(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An observation of 7 s on a busy machine was followed by two and a half minutes without one."""
    ready(desk)
    _, cursor = report(desk)
    slow = replace(load_memory(cursor), took=7.5)
    monkeypatch.setattr("rota.dagster.sensors.checks.PAUSE_FACTOR", 20)
    assert isinstance(desk.tick("p__checks", slow.dump()), dg.SkipReason)
    monkeypatch.setattr("rota.dagster.sensors.checks.time", SimpleNamespace(time=lambda: slow.at + MAX_PAUSE + 1))
    report(desk, slow.dump())


def test_what_may_heal_is_looked_at_again_when_it_should_have() -> None:
    """It was on the page, and an alert was sent, up to a whole pause later."""
    slow = Memory(took=1.6)
    assert choose_pause(slow) == PAUSE_FACTOR * 1.6
    assert choose_pause(replace(slow, due=10.0)) == 10.0
    assert choose_pause(replace(slow, due=70.0)) == PAUSE_FACTOR * 1.6
    assert choose_pause(Memory()) == MIN_PAUSE
    assert choose_pause(Memory(took=60.0)) == MAX_PAUSE


def test_a_gap_is_reported_as_long_as_the_log_has_it_whichever_run_works_meanwhile(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass of the next run hid the failure of the one before: each looked at its own keys."""
    ready(desk)

    def entry(version: int, partition: str, start: int, end: int) -> LogEntry:
        return LogEntry(
            version, 0.0, "commit", "g", "c", "r", "a", 1, {partition: 1}, {partition: (start, end)}, {}, {}, 0
        )

    log = [entry(1, "p:a", 0, 1), entry(2, "p:a", 5, 6)]
    monkeypatch.setattr(Ledger, "read_log", lambda _, since=-1: tuple(e for e in reversed(log) if e.version > since))
    reported, cursor = report(desk)
    assert reported["no_gap"] == (False, "ERROR")
    log += [entry(v, "p:b", v, v + 1) for v in range(3, 2000)]
    reported, cursor = report(desk, cursor)
    assert reported == {}, "it is on the page, and stays"
    log += [entry(2000, "p:b", 2000, 2001)]
    assert report(desk, cursor)[0] == {}
    del log[:]
    assert report(desk, cursor)[0] == {"no_gap": (True, "ERROR")}, "another table is there"


def test_what_cannot_be_looked_at_is_red_on_the_page_and_green_again_later(desk: Desk) -> None:
    """Without ZooKeeper the sensor failed, and all checks stayed green."""
    ready(desk)
    _, cursor = report(desk)
    key = dg.AssetCheckKey(names.ownership("p"), checks.GROUP)
    hosts, desk.hosts = desk.hosts, "127.0.0.1:1"
    with pytest.raises(dg.Failure):
        desk.tick("p__checks", cursor)
    said = checks.read_evaluation(desk.instance, key)
    assert said is not None
    assert said[0].passed, "an outage of seconds heals itself"
    with pytest.raises(dg.Failure):
        desk.tick("p__checks", None)  # the last observation is long ago
    said = checks.read_evaluation(desk.instance, key)
    assert said is not None
    assert (said[0].passed, said[0].severity.value) == (False, "ERROR")
    assert "127.0.0.1:1" in str(said[0].description)
    desk.hosts = hosts
    assert report(desk, cursor)[0] == {checks.GROUP: (True, "ERROR")}


def test_runs_that_fail_and_a_sensor_that_is_off_are_red_on_the_page(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sensor that was turned off was silent, and failed runs were on their own page alone."""
    ready(desk)
    _, cursor = report(desk)
    for number in range(3):
        run = desk.run("p__consume", Status.STARTED, **{WORKER_TAG: "w1"})
        desk.instance.report_run_failed(run)
        reported, cursor = report(desk, cursor)
        assert reported == {"keeps_up": (False, "WARN" if number < 2 else "ERROR")}
    desk.instance.report_run_failed(desk.run("p__consume", Status.STARTED))  # a click
    desk.run("p__consume", Status.SUCCESS, **{WORKER_TAG: "w1"})
    assert report(desk, cursor)[0] == {"keeps_up": (True, "ERROR")}
    for _ in range(3):
        desk.instance.report_run_failed(
            desk.run(f"{desk.group}__rebalance", Status.STARTED, rota__rebalance=desk.group)
        )
    assert report(desk, cursor)[0] == {"keeps_up": (False, "ERROR")}
    desk.run(f"{desk.group}__rebalance", Status.SUCCESS, rota__rebalance=desk.group)
    assert report(desk, cursor)[0] == {"keeps_up": (True, "ERROR")}
    where = SimpleNamespace(location_name="here")
    off = SimpleNamespace(name="p__backlog", is_running=False, repository_selector=where)
    monkeypatch.setattr(dg.DagsterInstance, "schedule_storage", True)  # an instance in memory has none
    monkeypatch.setattr(dg.DagsterInstance, "all_instigator_state", lambda _: [off])
    assert report(desk, cursor)[0] == {"keeps_up": (False, "ERROR")}


def test_a_table_of_another_group_is_distinguished_from_an_unreadable_one() -> None:
    """The first needs an operator at once: it does not heal."""
    assert describe_refusal(ForeignTable("it is another group's. rota adopt")).foreign
    assert not describe_refusal(EnvironmentFailed("the disk is gone. Mount it")).foreign


def consume_once(desk: Desk, *partitions: str) -> None:
    """What a run shows of a partition's first batch under its token."""
    for p, own in desk.tree.owned(partitions).items():
        shown = dict(describe_owner(str(own.incarnation), own.token, 1))
        made = dg.AssetMaterialization(names.ownership("p"), None, shown, p, tags={"dagster/data_version": "7"})
        desk.instance.report_runless_asset_event(made)


def read_owner(desk: Desk, partition: str) -> dict[str, object]:
    """What the page shows of the partition."""
    filters = dg.AssetRecordsFilter(names.ownership("p"), asset_partitions=[partition])
    (record,) = desk.instance.fetch_materializations(filters, limit=1).records
    made = record.asset_materialization
    assert made
    assert (made.tags or {})["dagster/data_version"] == "7", "nothing below it becomes unsynced"
    return {key: value.value for key, value in made.metadata.items()}


def count_shown(desk: Desk) -> int:
    return len(desk.instance.fetch_materializations(names.ownership("p"), limit=1000).records)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_partition_that_moves_and_at_which_nothing_lands_is_shown_with_its_owner(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The page showed a worker that had not owned the partition for 48 minutes, and its incarnation was dead by then."""
    if not guarded:
        monkeypatch.setattr("rota.dagster.sensors.checks.show_claims", lambda *_: ([], 0))
    incarnations = ready(desk)
    consume_once(desk, "p:a", "p:b", "p:c")
    _, cursor = report(desk)
    assert count_shown(desk) == 3, "what runs showed is right"
    own = desk.tree.owned(("p:a",))["p:a"]
    other = next(one for one in incarnations.values() if one != own.incarnation)
    claim_one(desk.tree, other, "p:a", own.version)
    reported, cursor = report(desk, cursor)
    own = desk.tree.owned(("p:a",))["p:a"]
    assert (read_owner(desk, "p:a")["incarnation"] == other) is guarded
    if guarded:
        assert read_owner(desk, "p:a") == dict(describe_owner(other, own.token, desk.tree.head().record.epoch))
        assert set(reported) <= {one.name for one in checks.list_checks(desk.catalog.pipelines["p"], names)}
        assert list_counted(desk.instance, checks.list_checks(desk.catalog.pipelines["p"], names)) == {
            one.name for one in checks.list_checks(desk.catalog.pipelines["p"], names)
        }, "and its checks count"
        assert count_shown(desk) == 4
        report(desk, cursor)
        report(desk)
        assert count_shown(desk) == 4, "once, also where the sensor forgot"


def test_however_many_partitions_move_at_once_a_look_shows_few_and_the_next_ones_the_rest(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "MAX_EVENTS", 2)
    monkeypatch.setattr(owners, "MAX_CLAIMS", 3)
    incarnations = ready(desk)
    ids = ("p:a", "p:b", "p:c")
    consume_once(desk, *ids)
    _, cursor = report(desk)
    for p, own in desk.tree.owned(ids).items():
        claim_one(desk.tree, next(one for one in incarnations.values() if one != own.incarnation), p, own.version)
    shown = []
    for _ in range(3):
        _, cursor = report(desk, cursor)
        shown.append(count_shown(desk) - 3)
    assert shown == [2, 3, 3]
    assert {p: read_owner(desk, p)["token"] for p in ids} == {p: own.token for p, own in desk.tree.owned(ids).items()}
