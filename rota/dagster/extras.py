"""Chooses the extras that Dagster can load together: what pipeline files declare for Dagster beside their pipelines.

Invariant: if the extras of two files collide, those of the older file are served. The other file's extras are left out with
Dagster's reason, and its pipeline is served.
"""

from collections.abc import Callable, Sequence
from types import ModuleType

import dagster as dg

from rota.dagster.pipeline_files import load_file

Merge = Callable[[Sequence[dg.Definitions]], object]  # raises what Dagster raises if they do not load together


def choose_extras(modules: Sequence[ModuleType], merge: Merge) -> tuple[list[dg.Definitions], dict[ModuleType, str]]:
    """Choose the files whose extras load together.

    Args:
        modules: the pipeline files, the oldest first.
        merge: loads extras together.

    Returns:
        The extras of the chosen files, and why those of each other file are left out.
    """
    chosen: list[dg.Definitions] = []
    why: dict[ModuleType, str] = {}
    left, found = list(modules), True
    while found:  # a file may need the extras of a younger file
        found, again = False, list[ModuleType]()
        for module in left:
            try:
                own = load_file(module)
                merge([*chosen, own])
            except Exception as error:
                why[module] = f"what it declares for Dagster is left out: {flatten(error) or type(error).__name__}"
                again.append(module)
            else:
                chosen.append(own)
                why.pop(module, None)
                found = True
        left = again
    return chosen, why


def flatten(error: Exception) -> str:
    """Return the message of an error of Dagster, and of its cause, in one line."""
    return " ".join(f"{error} {error.__cause__ or ''}".split())
