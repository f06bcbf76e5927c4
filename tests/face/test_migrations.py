"""Dagster's storage is opened anew at each tick; the migrations of Dagster are read once."""

from pathlib import Path

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from dagster_project import migrations


def test_opening_the_storage_again_reads_no_migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick read some 180 modules, which was two thirds of its processor time."""
    read: list[str | None] = []
    shipped = ScriptDirectory.from_config

    def from_config(config: Config) -> ScriptDirectory:
        read.append(config.get_main_option("script_location"))
        return shipped(config)

    monkeypatch.setattr(ScriptDirectory, "from_config", from_config)
    migrations.keep_migrations()
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}")
    for _ in range(3):
        with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
            assert instance.get_runs() == []
            assert instance.get_latest_materialization_event(dg.AssetKey("none")) is None
    assert len(read) == 1, "more: Dagster's migrations are elsewhere now; none: it asks Alembic in another way"


@pytest.mark.parametrize("guard", [True, False], ids=["as it is", "whosever they are"])
def test_the_migrations_of_others_are_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: bool
) -> None:
    """An asset may keep a database of its own, and write its next migration; its folder may be called like Dagster's."""
    monkeypatch.setattr(ScriptDirectory, "from_config", ScriptDirectory.from_config)  # put back at the end
    if not guard:
        monkeypatch.setattr(migrations, "DAGSTERS", "")
    migrations.keep_migrations()
    monkeypatch.chdir(tmp_path)
    mine = Config()
    mine.set_main_option("script_location", "dagster_mine")
    (tmp_path / "dagster_mine" / "versions").mkdir(parents=True)
    assert ScriptDirectory.from_config(mine).get_heads() == []
    (tmp_path / "dagster_mine" / "versions" / "one.py").write_text("revision = 'one'\ndown_revision = None\n")
    assert ScriptDirectory.from_config(mine).get_heads() == (["one"] if guard else []), "Alembic would not migrate"
