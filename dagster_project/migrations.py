"""Reads Dagster's migrations once in a process.

Each tick of a sensor, and each run, opens Dagster's storage anew. For each of its databases Dagster asks Alembic whether
it is of this version, and Alembic then loads every migration that Dagster ever had: some 90 modules of Python, and 20 ms of
processor time, two or three times a tick. They change only with Dagster itself, not while a process runs. Law: what others
ask Alembic for is answered as before.
"""

from alembic.config import Config
from alembic.script import ScriptDirectory

DAGSTERS = "dagster:"  # how Alembic names a folder of Dagster's package


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
