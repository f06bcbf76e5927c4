"""Reads Dagster's migrations once in a process.

Each tick of a sensor, and each run, opens Dagster's storage anew. For each of its databases Dagster asks Alembic whether
it is of this version, and Alembic then loads every migration that Dagster ever had: some 90 modules of Python, and 20 ms of
processor time, two or three times a tick. They change only with Dagster itself, not while a process runs. Law: what others
ask Alembic for is answered as before.
"""

from alembic.config import Config
from alembic.script import ScriptDirectory

DAGSTERS = "dagster:"  # how Alembic names a folder of Dagster's package
STORAGES = "dagster:_core/storage/alembic"  # the one of all its databases


def keep_migrations() -> None:
    """Makes Alembic answer with the migrations of Dagster that this process has loaded."""
    read, kept = ScriptDirectory.from_config, dict[str, ScriptDirectory]()

    def from_config(config: Config) -> ScriptDirectory:
        place = config.get_main_option("script_location") or ""
        if not place.startswith(DAGSTERS):
            return read(config)
        if place not in kept:
            kept[place] = read(config)
        return kept[place]

    ScriptDirectory.from_config = from_config  # type: ignore[method-assign, assignment]


def read_migrations() -> None:
    """Reads the migrations of Dagster now, so that no process that is forked from this one does."""
    config = Config()
    config.set_main_option("script_location", STORAGES)
    ScriptDirectory.from_config(config).get_heads()
