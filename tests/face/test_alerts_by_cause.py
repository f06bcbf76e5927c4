"""Alerts by cause: a failed run is over when what failed in it succeeded, and one fault of many partitions is one alert."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import dagster as dg
import pytest

from rota.coordination.records import Parked
from rota.dagster.sensors import alerts
from rota.dagster.sensors.alerts import Alert, Place, join_causes, make_alert_sensor
from rota.errors import BadTransform, OffsetGap, SourceChanged, TooManyBadRecords, TooSlow
from rota.face.needs import find_needs
from rota.face.seen import Seen
from rota.run.eligibility import Facts

KEYS = ("berlin", "2026-01-01")
broken: set[str] = set()  # the assets and partitions that fail now, as `asset` or `asset:partition`


def _fail_if_broken(name: str) -> None:
    if name in broken:
        raise ModuleNotFoundError("No module named 'polars'")


@dg.asset
def report() -> None:
    _fail_if_broken("report")


@dg.asset
def other() -> None:
    _fail_if_broken("other")


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(list(KEYS)))
def daily(context: dg.AssetExecutionContext) -> None:
    _fail_if_broken(f"daily:{context.partition_key}")


@dg.op
def send() -> None:
    _fail_if_broken("send")


@dg.job
def mail() -> None:
    send()


sent: list[Alert] = []
sensor = make_alert_sensor(sent.append)
both = dg.define_asset_job("both", selection=["report", "other"])
REPOSITORY = dg.Definitions([report, other, daily], jobs=[mail, both], sensors=[sensor]).get_repository_def()


class Page:
    """What a user clicks on the page, and the ticks of the sensor."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance, self.cursor = instance, None
        self.tick()

    def tick(self) -> list[str]:
        """The titles of the alerts of one tick."""
        sent.clear()
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor, repository_def=REPOSITORY)
        sensor(context)
        self.cursor = context.cursor
        return [one.title for one in sent]

    def run(self, *assets: str, partition: str | None = None, job: str = "__ASSET_JOB") -> list[str]:
        """Runs the assets or the job, then ticks."""
        selection = [dg.AssetKey(name) for name in assets] or None
        REPOSITORY.get_job(job).execute_in_process(
            instance=self.instance, asset_selection=selection, partition_key=partition, raise_on_error=False
        )
        return self.tick()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    broken.clear()
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield Page(instance)


def test_only_a_success_of_what_failed_ends_an_alert(page: Page) -> None:
    broken.update(("report", "send", "daily:berlin", "daily:2026-01-01"))
    assert page.run("report") == ["a run of report failed"]
    assert page.run("other") == page.run("report") == []
    assert page.run(job="mail") == ["a run of mail failed"]
    assert page.run("daily", partition="berlin") == ["a run of daily failed"]
    assert page.run("daily", partition="2026-01-01") == [], "one cause"
    broken.clear()
    assert page.run("other") == []
    assert page.run("daily", partition="berlin") == [], "the other partition has not succeeded yet"
    assert page.run("daily", partition="2026-01-01") == ["over: a run of daily failed"]
    assert page.run("report") == ["over: a run of report failed"]
    assert page.run(job="mail") == ["over: a run of mail failed"]


def test_of_a_run_of_several_assets_those_that_failed_count_whichever_job_makes_them(page: Page) -> None:
    broken.add("report")
    assert page.run(job="both") == ["a run of both failed"]
    assert page.run("other") == []
    broken.clear()
    assert page.run("report") == ["over: a run of both failed"], "`other` succeeded in the failed run"


def test_a_success_of_other_assets_ends_the_alert_without_the_look_at_assets(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ablation: with the newest run of the job as the judge, the all-clear is false."""

    def is_newest_well(context: dg.SensorEvaluationContext, run_id: str) -> bool:
        run = context.instance.get_run_by_id(run_id)
        (last,) = context.instance.get_runs(dg.RunsFilter(job_name=run.job_name), limit=1)
        return last.is_success

    monkeypatch.setattr(alerts, "has_recovered", is_newest_well)
    broken.add("report")
    page.run("report")
    assert page.run("other") == ["over: a run of report failed"]


@pytest.mark.parametrize("error", [TooManyBadRecords, BadTransform, SourceChanged, OffsetGap, TooSlow])
def test_one_kind_of_error_of_a_thousand_partitions_is_one_alert(error: type[Exception]) -> None:
    """Each reason names its own folder, file, line and numbers; keys are words, dates, paths and numbers."""
    random = Random(error.__name__)
    keys = [f"{random.choice(('shop', 'été', 'day=', 'a/b', ''))}{n}{random.choice('abcx')}" for n in range(1000)]
    assert len(_join(keys, error.__name__)) == 1
    assert len(_join(keys, "")) > 1, "the text alone does not join them"
    two = {**_join(keys[:500], error.__name__), **_join(keys[500:], "RecordOfANewerRota")}
    assert len(two) == 2, "another kind is another alert"


def _join(keys: list[str], error: str) -> dict[str, object]:
    def park(key: str) -> Parked:
        why = (
            f"200 of {len(key)} records of orders:{key} are bad: line 1 of {key}/{key}.json (offset {keys.index(key)})"
        )
        return Parked(reason=why, step=f"rota retry orders:{key}", since=1.0, error=error)

    ids = [f"orders:{key}" for key in keys]
    parked = {one: park(key) for one, key in zip(ids, keys, strict=True)}
    facts = Facts(partitions=tuple(ids), parked=parked, now=1.0)
    needs, _ = find_needs(Seen("default", 1.0, facts))
    found = [one for one in needs if one.cause == "parked"]
    assert len(found) == len(keys)
    return join_causes(dict.fromkeys(found, Place("orders/records:none_parked", "/assets")))
