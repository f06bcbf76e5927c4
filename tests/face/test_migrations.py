"""What is done once for all ticks and runs: Dagster's migrations are read, and the modules of a run are imported."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from dagster_project.warm import PRELOADED

if TYPE_CHECKING:  # every process of the tests collects this file, and one runs it
    from alembic.config import Config
    from alembic.script import ScriptDirectory


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Where migrations were read, each time that they were."""
    from alembic.script import ScriptDirectory

    found: list[str | None] = []
    shipped = ScriptDirectory.from_config

    def from_config(config: "Config") -> "ScriptDirectory":
        found.append(config.get_main_option("script_location"))
        return shipped(config)

    monkeypatch.setattr(ScriptDirectory, "from_config", from_config)
    return found


def test_opening_the_storage_again_reads_no_migrations(tmp_path: Path, read: list[str | None]) -> None:
    """Each tick read some 180 modules, which was two thirds of its processor time."""
    from dagster_project import migrations

    migrations.keep_migrations()
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}")
    for _ in range(3):
        with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
            assert instance.get_runs() == []
            assert instance.get_latest_materialization_event(dg.AssetKey("none")) is None
    assert len(read) == 1, "more: Dagster's migrations are elsewhere now; none: it asks Alembic in another way"


def test_what_is_forked_from_a_process_that_read_them_reads_none(tmp_path: Path, read: list[str | None]) -> None:
    """Each run read them three times before its first line, in 85 of its 850 ms of processor time."""
    from dagster_project import migrations

    migrations.keep_migrations()
    migrations.read_migrations()
    assert read == [migrations.STORAGES]
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}")
    migrations.keep_migrations()  # as the code location does in the run
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.get_runs() == []
    assert read == [migrations.STORAGES], "Dagster asks for the same place"


@pytest.mark.parametrize("guard", [True, False], ids=["as it is", "whosever they are"])
def test_the_migrations_of_others_are_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: bool
) -> None:
    """An asset may keep a database of its own, and write its next migration; its folder may be called like Dagster's."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    from dagster_project import migrations

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


def test_what_runs_are_to_find_imported_is_there() -> None:
    """Python passes over a name that it cannot import, and each run would import it anew."""
    assert not [name for name in PRELOADED if find_spec(name) is None]
