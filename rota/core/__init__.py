"""Decisions. Each is a pure function of frozen values: it reads no clock, does no I/O and draws no random numbers.

The names below are imported on first use: a worker under `assigned` needs only `reconcile`, which does not import numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.core.planner import plan
    from rota.core.values import (
        Assignment,
        Measures,
        Move,
        Partition,
        Plan,
        Policy,
        Snapshot,
        Unassigned,
        Worker,
    )

__all__ = [
    "Assignment",
    "Measures",
    "Move",
    "Partition",
    "Plan",
    "Policy",
    "Snapshot",
    "Unassigned",
    "Worker",
    "plan",
]


def __getattr__(name: str) -> Any:
    """Import the name from the module that defines it."""
    if name not in __all__:
        raise AttributeError(f"module 'rota.core' has no attribute {name!r}")
    return getattr(import_module("rota.core.planner" if name == "plan" else "rota.core.values"), name)
