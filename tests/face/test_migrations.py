"""Dagster's storage is opened anew at each tick; the migrations of Dagster are read once."""

from pathlib import Path

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from dagster_project.migrations import keep_migrations


def test_opening_the_storage_again_reads_no_migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick read some 180 modules, which was two thirds of its processor time."""
    read: list[str | None] = []
    shipped = ScriptDirectory.from_config

    def from_config(config: Config) -> ScriptDirectory:
        read.append(config.get_main_option("script_location"))
        return shipped(config)

    monkeypatch.setattr(ScriptDirectory, "from_config", from_config)
    keep_migrations()
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}")
    for _ in range(3):
        with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
            assert instance.get_runs() == []
            assert instance.get_latest_materialization_event(dg.AssetKey("none")) is None
    assert len(read) == 1


def test_the_migrations_of_others_are_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An asset may keep a database of its own, and write its next migration."""
    monkeypatch.setattr(ScriptDirectory, "from_config", ScriptDirectory.from_config)  # put back at the end
    keep_migrations()
    mine = Config()
    mine.set_main_option("script_location", str(tmp_path))
    (tmp_path / "versions").mkdir()
    assert ScriptDirectory.from_config(mine).get_heads() == []
    (tmp_path / "versions" / "one.py").write_text("revision = 'one'\ndown_revision = None\n")
    assert ScriptDirectory.from_config(mine).get_heads() == ["one"]
