"""The code location of `rota up` and `rota demo`: the same definitions, in an instance of Dagster that serves nothing else.
So it may change how this process starts runs."""

from dagster_project.definitions import defs
from dagster_project.warm import warm

__all__ = ["defs"]

warm()
