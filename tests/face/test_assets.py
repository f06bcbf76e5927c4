"""Assets through an instance, on a real ZooKeeper, a real Spark and real tables: runs, clicks, backfills, replays."""

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.forget import forget_partitions
from rota.coordination.membership import register_run
from rota.coordination.parking import park
from rota.dagster.assets.checks import list_checks
from rota.dagster.resources.spark import SparkResource
from rota.dagster.sensors.runs import Runs
from rota.dataplane.spark.spark_server import SparkServer
from rota.ids import PARKED_TAG, WORKER_TAG
from rota.people.skip import skip
from rota.registry import open_ports
from tests.face.bench import Bench, names
from tests.face.desk import list_counted


@pytest.fixture
def bench(
    zookeeper: EmbeddedZooKeeper, spark: SparkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    monkeypatch.setenv("ROTA_ZOOKEEPER", zookeeper.hosts)
    monkeypatch.setenv("ROTA_LINGER", "0")  # a run is one batch: what a lasting one adds is in test_lasting.py
    with dg.DagsterInstance.ephemeral() as instance:
        bench = Bench(zookeeper.hosts, spark.url, tmp_path, instance)
        yield bench
        for store in bench.stores:
            store.close()


def list_results(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {e.check_name: e.passed for e in result.get_asset_check_evaluations()}


def test_an_epoch_shows_the_owners_and_one_that_changes_nothing_is_an_observation(bench: Bench) -> None:
    bench.land(a=1, b=2, c=3)
    bench.settle()
    record = bench.instance.fetch_materializations(names.assignment(bench.group), limit=5).records
    assert len(record) == 1
    published = bench.instance.get_run_by_id(record[0].run_id)
    assert published is not None
    assert published.tags["rota/epoch"] == f"{bench.group}/1", "by it the runs page finds the runs of the epoch"
    made = record[0].asset_materialization
    assert made is not None
    assert made.tags["dagster/data_version"] == "1"
    shown = {k: v.value for k, v in made.metadata.items()}
    assert shown["what happened"] == "Epoch 1: w1, w2 joined. 3 of 3 placed. Imbalance 1.33."
    assert {r["worker"]: r["partitions"] for r in _records(shown["workers"])} == {"w1": 2, "w2": 1}
    assert {r["reason"] for r in _records(shown["moves"])} == {"it had no owner"}
    assert (shown["epoch"], shown["partitions that had no owner"], shown["partitions moved"]) == (1, 3, 0)
    assert (shown["load of w1"], shown["lag of p:a"], shown["lag, total"]) == (2.0, 1, 3)
    assert round(shown["imbalance by count"], 2) == 1.33
    again = bench.materialize("assignment")
    assert again.success
    assert list_results(again) == {"one_owner_each": True, "balance_within_bound": True}
    assert len(bench.instance.fetch_materializations(names.assignment(bench.group), limit=5).records) == 1
    observed = bench.instance.fetch_observations(names.assignment(bench.group), limit=5).records
    assert len(observed) == 1


def test_a_sensors_run_consumes_its_keys_and_shows_them_in_all_three_assets(bench: Bench) -> None:
    bench.land(a=1, b=2, c=3, d=4)
    held = bench.settle()
    specs = list_checks(bench.catalog.pipelines["p"], names)
    for spec in specs:
        bench.instance.report_runless_asset_event(dg.AssetCheckEvaluation(spec.asset_key, spec.name, passed=True))
    incarnation, keys = next(iter(held.items()))
    result = bench.materialize("batch", {"incarnation": incarnation, "partitions": keys})
    assert result.success
    assert {p for p, _, _ in bench.rows()} == set(keys)
    for asset in names.consumed("p"):
        assert bench.status(asset) == (keys, [])
    owner, batch, at = (bench.read_shown(asset, keys[0]) for asset in names.consumed("p"))
    assert (owner["incarnation"], owner["epoch"]) == (incarnation, 1)
    assert owner["token"] == batch["token"] == at["token"] == bench.offsets()[keys[0]][1]
    assert (batch["rows"], batch["quarantined rows"], batch["offsets"]) == (1, 0, "[0, 1)")
    assert batch["dagster/partition_row_count"] == 1
    (file,) = (bench.folder / "p" / (key := keys[0].removeprefix("p:"))).iterdir()
    place = f"{key}/{file.name} (offset 0)"
    assert (at["offset"], at["lag"], at["last read"], batch["read from"]) == (1, 0, place, place)
    assert "|n|&#95;offset|" in batch["first rows"]
    assert list_results(result) == {}, "runs are many, and the sensor looks at the whole"
    assert all(bench.evaluate_checks().values())
    assert list_counted(bench.instance, specs) == {spec.name for spec in specs}, "new rows make no check unevaluated"
    file.write_text(json.dumps({"n": 12345}) + "\n")
    (bench.folder / "p" / "in_no_folder.json").write_text("{}")
    again = bench.materialize("batch", {"incarnation": incarnation, "partitions": keys})
    assert (again.success, again.get_asset_materialization_events()) == (True, []), "nothing new is no event"
    assert [check for check, right in bench.evaluate_checks().items() if not right] == [
        "none_rewritten",
        "none_left_out",
    ]
    clicked = bench.materialize("pages", partition_key=keys[0])
    assert list_results(clicked) == bench.evaluate_checks(), (
        "a click on the page evaluates the checks, also where nothing is new"
    )


def test_a_stale_config_is_dropped_with_its_reason_and_ends_quietly(bench: Bench) -> None:
    bench.land(a=1, b=2)
    held = bench.settle()
    (one, mine), (_, others) = held.items()
    bench.land(gone=3)
    result = bench.materialize("batch", {"incarnation": one, "partitions": [*mine, *others, "p:gone"]})
    assert result.success, "also of a partition that the group forgot since the run was launched"
    assert list(bench.list_skipped(result)) == [*others, "p:gone"]
    assert "owns it" in bench.list_skipped(result)[others[0]]
    assert {p for p, _, _ in bench.rows()} == set(mine)


def test_what_a_person_types_is_refused_as_a_whole_where_it_is_unknown_and_else_answered(bench: Bench) -> None:
    bench.land(a=1, b=2)
    bench.settle()
    park(bench.tree, "p:a", "the user's transform raised")
    for partition, why in (("p:bb", "Unknown partition"), ("q:b", "not of pipeline")):
        mistyped = bench.materialize("batch", {"partitions": ["p:b", partition]})
        assert not mistyped.success
        assert why in (said := find_reason(mistyped))
        assert "\n" not in said
        assert bench.list_skipped(mistyped) == {}
    assert bench.offsets() == {}, "of the others nothing was consumed, either"
    typed = bench.materialize("batch", {"partitions": ["p:a", "p:b"]})
    assert not typed.success, "the caller learns what could not be done"
    assert "p:a was not consumed: it is parked: the user's transform raised" in find_reason(typed)
    assert bench.status(names.records("p")) == (["p:b"], ["p:a"])
    again = bench.materialize("batch", {"partitions": ["p:b"]})
    assert again.success
    assert bench.read_shown(names.records("p"), "p:b")["nothing new"] is True


def test_a_click_works_for_each_owner_and_skips_what_no_run_may_touch(bench: Bench) -> None:
    bench.land(a=1, b=2, c=3, d=4, e=5, f=6)
    held = bench.settle()
    park(bench.tree, "p:a", "the user's transform raised")
    run = register_run(bench.tree, "another-run", _owner(held, "p:b"), ["p:b"])
    bench.instance.add_dynamic_partitions("p/partitions", ["p:nowhere"])
    freed = threading.Timer(3.0, lambda: bench.stores[0].delete(run))
    freed.start()
    result = bench.materialize("batch")  # no config and no selection: all there is
    freed.join()
    why = bench.list_skipped(result)
    assert set(why) == {"p:a", "p:nowhere"}
    assert "parked: the user's transform raised" in why["p:a"]
    assert "no worker owns it" in why["p:nowhere"]
    assert not result.success, "the caller learns which could not be done"
    assert bench.status(names.records("p")) == (["p:b", "p:c", "p:d", "p:e", "p:f"], ["p:a", "p:nowhere"])
    assert not bench.evaluate_checks()["none_parked"]
    assert {p for p, _, _ in bench.rows()} == {"p:b", "p:c", "p:d", "p:e", "p:f"}, "what a run works on is waited for"
    assert {bench.read_shown(names.ownership("p"), f"p:{key}")["incarnation"] for key in "cdef"} == set(held)
    owners = {p: bench.read_shown(names.ownership("p"), p)["incarnation"] for p in ("p:c", "p:d", "p:e", "p:f")}
    assert owners == {p: _owner(held, p) for p in owners}


def test_a_backfill_of_a_range_answers_for_every_key_also_where_nothing_is_new(bench: Bench) -> None:
    bench.land(a=1, b=2, c=3)
    held = bench.settle()
    tags = {"dagster/asset_partition_range_start": "p:b", "dagster/asset_partition_range_end": "p:c"}
    assert bench.materialize("batch", tags=tags).success
    assert bench.status(names.checkpoints("p")) == (["p:b", "p:c"], [])
    rows = bench.rows()
    assert bench.materialize("batch", partition_key="p:b").success
    assert bench.rows() == rows
    idle = bench.read_shown(names.records("p"), "p:b")
    assert (idle["rows"], idle["offsets"], idle["nothing new"]) == (1, "[0, 1)", True), "the last real numbers stay"
    assert sum(map(len, held.values())) == 3


def test_a_replay_replaces_its_range_beside_live_work_and_moves_no_offset(bench: Bench) -> None:
    bench.land(a=1)
    bench.land(a=2)
    held = bench.settle()
    assert bench.materialize("batch", {"incarnation": next(iter(held)), "partitions": ["p:a"]}).success
    before, rows = bench.offsets(), bench.rows()
    result = bench.materialize("replay", {"partitions": ["p:a"], "replay": {"from": 0, "to": 1}})
    assert result.success
    assert (bench.offsets(), bench.rows()) == (before, rows)
    owner, batch, at = (bench.read_shown(asset, "p:a") for asset in names.consumed("p"))
    assert owner["replayed"] == batch["replayed"] == at["replayed"] == "[0, 1)"
    assert at["offset"] == 2
    (row,) = (n for _, offset, n in rows if offset == 0)
    assert batch["first rows"].splitlines()[2:] == [f"|{row}|0|"], "of the offset that was read again, and of no other"
    assert batch["read from"].endswith(" (offset 0)")
    beyond = bench.materialize("replay", {"partitions": ["p:a"], "replay": {"from": 1, "to": 9}})
    assert not beyond.success
    assert "only offsets below 2 were consumed" in bench.list_skipped(beyond)["p:a"]
    assert bench.rows() == rows


def test_an_asset_of_ones_own_has_a_session_too(spark: SparkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARTS", "3")
    monkeypatch.setenv("SPARK_AT", spark.url)
    seen: list[object] = []

    @dg.asset
    def mine(rota_spark: SparkResource) -> None:
        session = rota_spark.spark_session
        assert session is rota_spark.spark_session
        seen.extend((session.range(5).count(), session.conf.get("spark.sql.shuffle.partitions")))

    config = {"spark.sql.shuffle.partitions": dg.EnvVar("PARTS")}
    given = {"rota_spark": SparkResource(remote=dg.EnvVar("SPARK_AT"), config=config)}  # type: ignore[dict-item]
    assert dg.materialize([mine], resources=given).success
    assert seen == [5, "3"]


def test_a_replay_takes_what_changed_or_files_and_what_is_downstream_reads_unsynced(bench: Bench) -> None:
    """A backfill is a replay of what changed. A partition in which nothing did is green as well, and one that the page still
    offers and that was forgotten since stops no other."""
    for number in (1, 2, 3):
        bench.land(a=number)
    bench.land(b=7, forgotten=9)
    held = bench.settle()
    for incarnation, partitions in held.items():
        assert bench.materialize("batch", {"incarnation": incarnation, "partitions": partitions}).success
    offset_of = {n: offset for p, offset, n in bench.rows() if p == "p:a"}
    first, _, last = sorted((bench.folder / "p" / "a").iterdir(), key=lambda file: offset_of[read(file)])
    at, versions = bench.offsets(), [bench.version(asset, "p:a") for asset in names.consumed("p")]

    def mend(file: Path, number: int) -> None:
        file.write_text(json.dumps({"n": number}) + "\n")

    mend(first, 10)
    mend(last, 30)
    forget_partitions(bench.tree, ["p:forgotten"])
    tags = {"dagster/asset_partition_range_start": "p:a", "dagster/asset_partition_range_end": "p:forgotten"}
    assert bench.materialize("replay", tags=tags).success
    middle = next(n for n, offset in offset_of.items() if offset == 1)
    assert bench.rows() == [("p:a", 0, 10), ("p:a", 1, middle), ("p:a", 2, 30), ("p:b", 0, 7), ("p:forgotten", 0, 9)]
    assert bench.evaluate_checks()["none_rewritten"]
    assert bench.offsets() == at
    assert bench.read_shown(names.records("p"), "p:b")["nothing to replay"] is True
    mine, records, checkpoints = (bench.version(asset, "p:a") for asset in names.consumed("p"))
    assert (mine, checkpoints) == (versions[0], versions[2])
    assert records != versions[1]
    mend(last, 31)
    named = {"partitions": ["p:a", "p:b"], "replay": {"files": [last.name]}}
    assert bench.materialize("replay", named).success
    assert bench.rows()[2] == ("p:a", 2, 31)
    assert bench.version(names.records("p"), "p:a") not in (records, versions[1])
    unknown = bench.materialize("replay", {"partitions": ["p:a"], "replay": {"files": ["nowhere.json"]}})
    assert not unknown.success
    mistyped = bench.materialize("replay", {"partitions": ["p:aa"], "replay": {"changed": True}})
    assert not mistyped.success, "nothing changed in what is not there"
    past = {"partitions": ["p:a"], "replay": {"until": "2020-01-01"}}
    assert bench.materialize("replay", past).success
    assert bench.rows()[2] == ("p:a", 2, 31)


def read(file: Path) -> int:
    return int(json.loads(file.read_text())["n"])


def test_a_run_that_fails_shows_its_keys_as_failed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.land(a=1, b=2)
    held = bench.settle()
    incarnation, keys = next(iter(held.items()))

    def gone(*_: object) -> None:
        raise ConnectionError("the endpoint is gone")

    with monkeypatch.context() as patch:
        patch.setattr(SparkResource, "connect", gone)
        assert not bench.materialize("batch", {"incarnation": incarnation, "partitions": keys}).success
    assert bench.status(names.records("p")) == ([], keys)
    assert bench.materialize("batch", {"incarnation": incarnation, "partitions": keys}).success
    assert bench.status(names.records("p")) == (keys, [])


def land_nonsense(bench: Bench, *partitions: str) -> None:
    for partition in partitions:
        (bench.folder / "p" / partition.removeprefix("p:") / "zz.json").write_text("nonsense\n")


def test_a_run_is_red_for_what_it_parked_and_only_that_is_red_until_it_is_consumed(bench: Bench) -> None:
    """It was green, and its partitions were grey: they failed, and the page had no word of it."""
    bench.land(a=1, b=2, c=3, d=4, e=5, f=6)
    incarnation, (one, two, *rest) = next(iter(bench.settle().items()))
    config = {"incarnation": incarnation, "partitions": [one, two, *rest]}
    assert bench.materialize("batch", config).success
    land_nonsense(bench, one)
    bench.land(**{two.removeprefix("p:"): 7})
    first = bench.materialize("batch", config)
    assert not first.success
    assert f"1 partition parked. {one}: 1 of 1 records" in find_reason(first)
    for asset in names.consumed("p"):
        assert bench.status(asset) == ([one, two, *rest], [one]), "what it committed stays"
    assert sorted(p for p, _, _ in bench.rows()) == sorted([one, two, two, *rest])
    run = bench.instance.get_run_by_id(first.run_id)
    assert run
    assert run.tags["rota/parked"] == "1"
    mine = Runs(bench.instance, names.consume_job("p"), {})
    assert mine.read_pause() == 0.0, "no other run waits for it"

    land_nonsense(bench, two)
    ports = open_ports(bench.catalog.pipelines["p"], bench.group, bench.tree.meta().id, SparkResource().connect)
    skip(bench.tree, ports, one)
    assert not bench.materialize("batch", config).success
    assert bench.status(names.records("p")) == ([one, two, *rest], [two]), "one has nothing new, and is well"

    skip(bench.tree, ports, two)
    assert bench.materialize("batch", {**config, "partitions": [two]}).success
    assert bench.status(names.records("p")) == ([one, two, *rest], [])
    assert bench.materialize("batch", config).success


@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_that_failed_for_parked_partitions_is_no_failure_in_a_row(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Without the tag the third of them needs an operator, and each holds up the good partitions of its worker."""
    if not guarded:
        monkeypatch.setattr("rota.dagster.assets.batch.PARKED_TAG", "another")
    job = bench.defs.get_job(names.consume_job("p"))
    for _ in range(3):
        tags = {WORKER_TAG: "w1", (PARKED_TAG if guarded else "another"): "1"}
        bench.instance.report_run_failed(bench.instance.create_run_for_job(job, tags=tags))
    mine = Runs(bench.instance, names.consume_job("p"), {})
    failed = mine.read_failures(WORKER_TAG)
    assert (mine.read_pause() == 0.0, not failed) == (guarded, guarded)


def test_a_batch_that_could_not_be_reported_is_reported_by_the_next_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.land(a=1)
    held = bench.settle()
    config = {"incarnation": next(iter(held)), "partitions": ["p:a"]}

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rota.dagster.assets.metadata.describe_batch", cut)
        first = bench.materialize("batch", config)
    assert bench.status(names.records("p"))[0] == []
    assert len(bench.rows()) == 1
    assert bench.materialize("batch", config).success
    shown = bench.read_shown(names.records("p"), "p:a")
    assert (shown["healed"], shown["committed by"]) == (True, first.run_id)
    assert len(bench.rows()) == 1


def test_after_consuming_a_partition_is_fresh_and_after_a_new_epoch_its_ownership_is_stale(bench: Bench) -> None:
    from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
    from dagster._core.loader import LoadingContextForTest

    bench.land(a=1)
    held = bench.settle()
    incarnation = next(iter(held))
    assert bench.materialize("batch", {"incarnation": incarnation, "partitions": ["p:a"]}).success

    def list_stale() -> list[bool]:
        context = LoadingContextForTest(bench.instance)
        seen = CachingStaleStatusResolver(bench.instance, bench.defs.asset_graph, context)
        return [seen.get_status(asset, "p:a") == StaleStatus.STALE for asset in names.consumed("p")]

    assert list_stale() == [False, False, False]
    bench.land(z=1)
    bench.settle()
    assert list_stale()[0]
    bench.land(a=2)
    assert bench.materialize("batch", {"incarnation": incarnation, "partitions": ["p:a"]}).success
    assert list_stale() == [False, False, False]


def find_reason(result: dg.ExecuteInProcessResult) -> str:
    """What the page shows of the step that failed."""
    failed = result.failure_data_for_node("p__batch")
    assert failed is not None
    assert failed.error is not None
    return failed.error.to_string()


def _owner(held: Mapping[str, list[str]], partition: str) -> str:
    return next(incarnation for incarnation, mine in held.items() if partition in mine)


def _records(table: Any) -> list[dict[str, Any]]:
    return [dict(record.data) for record in table.records]
