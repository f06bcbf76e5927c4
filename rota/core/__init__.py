"""Decisions. Each is a pure function of frozen values: it reads no clock, does no I/O and draws no random numbers."""

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
