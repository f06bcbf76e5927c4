"""Decisions as pure functions of frozen values: no clock, no I/O, no randomness of its own."""

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
