"""The job that maintains a pipeline's tables: the page shows what it did, and a failure makes it red."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from deltalake import DeltaTable

from rota.dagster.assets import page_keys as keys
from rota.dagster.assets.names import Names
from rota.dagster.maintain import make_maintain_job, make_maintain_schedule
from rota.ledger.merging import FEW
from rota.pipeline import Pipeline, delta, files
from rota.registry import open_tables
from tests.dataplane.delta_tables import append_batch

NAMES = Names(("staging",))


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as made:
        yield made


def make_pipeline(folder: Path) -> Pipeline:
    return Pipeline(files("/landing", format="json", schema="n int"), delta(str(folder / "table")), name="my-p")


def test_the_page_shows_what_it_did(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pipeline = make_pipeline(tmp_path)
    table = open_tables(pipeline, pipeline.group, "0" * 32).main
    for _ in range(FEW):
        append_batch(table)
    assert make_maintain_job(pipeline, NAMES).execute_in_process(instance=instance).success
    (one,) = instance.fetch_observations(NAMES.records("my-p"), limit=9).records
    said = one.asset_observation
    assert said
    assert {key: value.value for key, value in said.metadata.items()} == {
        keys.MERGED: FEW,
        keys.MERGED_INTO: 1,
        keys.BYTES_WRITTEN: said.metadata[keys.BYTES_WRITTEN].value,
        keys.FILES_LEFT: 0,
        keys.BYTES_LEFT: 0,
        keys.COMMITS_PACKED: 0,
        keys.VACUUMED: 0,
        keys.TIDIED: 0,
    }
    assert said.description == (
        "8 files put together into 1, 0 left to the next run; 0 commits packed; 0 unused files deleted"
    )
    assert len(DeltaTable(table.location).file_uris()) == 1


def test_what_failed_is_one_red_line(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pipeline = make_pipeline(tmp_path)
    (tmp_path / "table/main/_delta_log").mkdir(parents=True)
    (tmp_path / "table/main/_delta_log" / f"{0:020}.json").write_text("no JSON")
    done = make_maintain_job(pipeline, NAMES).execute_in_process(instance=instance, raise_on_error=False)
    assert not done.success
    (failed,) = [e for e in done.all_events if e.event_type_value == "STEP_FAILURE"]
    assert "is no table that can be read" in str(failed.step_failure_data.error)


def test_each_pipeline_has_a_schedule_that_is_on_at_a_minute_of_its_own() -> None:
    pipeline = make_pipeline(Path("/x"))
    schedule = make_maintain_schedule(pipeline, NAMES)
    assert (schedule.name, schedule.job_name) == ("staging__my_2dp__maintain", "staging__my_2dp__maintain")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    minute, *rest = str(schedule.cron_schedule).split()
    assert (int(minute) in range(60), rest) == (True, ["3", "*", "*", "*"])
