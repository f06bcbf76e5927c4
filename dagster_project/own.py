"""The code location of `rota up` and `rota demo`: the same definitions, in a Dagster instance that serves nothing else, so
that it may change how this process starts runs."""

from dagster_project.definitions import defs
from dagster_project.warm import warm

__all__ = ["defs"]

warm()
