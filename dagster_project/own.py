"""The code location of `rota up` and `rota demo`: the same definitions, in an instance of Dagster that serves nothing else.
So it may change how this process starts runs and opens Dagster's storage."""

from dagster_project.definitions import defs
from dagster_project.migrations import keep_migrations
from dagster_project.warm import warm

__all__ = ["defs"]

keep_migrations()
warm()
