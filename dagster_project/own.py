"""The code location of `rota up` and `rota demo`: the same definitions, in an instance of Dagster that serves nothing else.
So it may change how this process starts runs, opens Dagster's storage and captures what runs print."""

from dagster_project.compute_logs import capture_in_files
from dagster_project.definitions import defs
from dagster_project.migrations import keep_migrations
from dagster_project.warm import warm

__all__ = ["defs"]

capture_in_files()
keep_migrations()
warm()
