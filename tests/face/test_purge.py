"""Old consuming runs go out of Dagster's storage, and the page still shows the offset of each partition."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from rota.cli.purge import parse_age
from rota.dagster.assets.names import Names
from rota.dagster.private import LOCATION_TAG
from rota.dagster.purge import find_needed_runs, make_purge_job
from rota.errors import ConfigError
from rota.pipeline import Pipeline, delta, files

NAMES = Names()
PIPELINE = Pipeline(files("/landing", format="json", schema="n int"), delta("/table"), name="p")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as made:
        made.add_dynamic_partitions("p/partitions", ["p:a", "p:b"])
        yield made


def consume(
    instance: dg.DagsterInstance, *partitions: str, replayed: bool = False, tag: str = "p", location: str = ""
) -> str:
    """A run that materializes these partitions as a consuming run does, launched by this code location; its id."""

    @dg.op(out=dg.Out(dg.Nothing))
    def batch(context: dg.OpExecutionContext) -> Iterator[dg.AssetMaterialization | dg.Output[None]]:
        for asset in NAMES.consumed("p"):
            for partition in partitions:
                metadata = {"replayed": "[0, 1)"} if replayed else {"rows": 1}
                yield dg.AssetMaterialization(asset, partition=partition, metadata=metadata)
        context.log.info("done")
        yield dg.Output(None)

    @dg.job(tags={"rota/consume": tag})
    def job() -> None:
        batch()

    return job.execute_in_process(instance=instance, tags={LOCATION_TAG: location} if location else {}).run_id


def purge(instance: dg.DagsterInstance, location: str = "", **config: object) -> str:
    """The result of the job, launched in this code location."""
    job = make_purge_job([PIPELINE], NAMES)
    tags = {LOCATION_TAG: location} if location else {}
    ended = job.execute_in_process(
        instance=instance, run_config={"ops": {"rota__remove": {"config": config}}}, tags=tags
    )
    said = [record.message for record in instance.all_logs(ended.run_id) if not record.is_dagster_event]
    return said[-1]


def list_runs(instance: dg.DagsterInstance) -> set[str]:
    return {run.run_id for run in instance.get_runs(dg.RunsFilter(tags={"rota/consume": ["p", "q"]}))}


def measure(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_the_newest_of_each_partition_stays_and_so_does_what_a_replay_covers(instance: dg.DagsterInstance) -> None:
    first, both = consume(instance, "p:a"), consume(instance, "p:a", "p:b")
    newer, again = consume(instance, "p:a"), consume(instance, "p:b", replayed=True)
    theirs = consume(instance, "p:b", tag="q")
    needed = find_needed_runs(instance, PIPELINE, NAMES)
    assert needed == {newer, theirs}, "the newest, of any run"
    instance.delete_run(theirs)
    assert find_needed_runs(instance, PIPELINE, NAMES) == {both, newer, again}
    assert purge(instance, older_than_days=0, dry_run=True).startswith("1 run can be removed, 3 stay")
    assert list_runs(instance) == {first, both, newer, again}
    assert purge(instance).startswith("0 runs removed, 0 stay"), "nothing is a week old"
    assert purge(instance, older_than_days=0).startswith("1 run removed, 3 stay")
    assert list_runs(instance) == {both, newer, again}
    keys = [
        dg.AssetRecordsFilter(asset_key=a, asset_partitions=[p]) for a in NAMES.consumed("p") for p in ("p:a", "p:b")
    ]
    assert all(instance.fetch_materializations(key, limit=1).records for key in keys)


def test_the_storage_shrinks_by_what_the_runs_took(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's SQLite has a file for each run: should a release of it put them elsewhere, this is where it is seen."""
    runs = [consume(instance, "p:a", "p:b") for _ in range(12)]
    monkeypatch.setattr("rota.dagster.purge.PAGE", 5)
    before = measure(tmp_path)
    assert all(list(tmp_path.rglob(f"{run}.db")) for run in runs)
    purge(instance, older_than_days=0)
    assert [bool(list(tmp_path.rglob(f"{run}*"))) for run in runs] == [False] * 11 + [True]
    assert measure(tmp_path) < before / 2


def test_a_run_that_has_not_ended_stays(instance: dg.DagsterInstance) -> None:
    run = consume(instance, "p:a")
    consume(instance, "p:a", "p:b")
    instance.run_storage.handle_run_event(
        run, dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, "job"), update_timestamp=datetime.now(UTC)
    )
    purge(instance, older_than_days=0)
    assert run in list_runs(instance)


@pytest.mark.parametrize("guard", [True, False], ids=["by location", "by pipeline alone"])
def test_a_purge_leaves_the_runs_of_another_code_location(instance: dg.DagsterInstance, guard: bool) -> None:
    """Staging and production have a pipeline of one name."""
    staging, production = "__repository__@staging", "__repository__@production"
    runs = {place: consume(instance, "p:a", location=place) for place in (staging, production)}
    consume(instance, "p:a", "p:b", location=production)
    assert purge(instance, staging if guard else "", older_than_days=0).startswith(
        "1 run removed" if guard else "2 runs removed"
    )
    assert (runs[production] in list_runs(instance), runs[staging] in list_runs(instance)) == (guard, False)


def test_an_age_is_a_number_and_a_unit() -> None:
    assert parse_age("7d") == timedelta(days=7)
    assert parse_age("1.5h") == timedelta(minutes=90)
    for wrong in ("7", "d", "7 days", "-1d", ""):
        with pytest.raises(ConfigError, match="Give a number and h, d or w"):
            parse_age(wrong)
