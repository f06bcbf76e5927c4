"""What an assignor is, and which there are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from rota.core.values import Codes, Snapshot
from rota.errors import ConfigError, shown

# name -> module below rota.core.assignors and its function; imported when first used.
ASSIGNORS: dict[str, tuple[str, str]] = {
    "avg-shed": ("pulsar.avg_shed", "assign"),
    "hash": ("baselines.memoryless", "by_hash"),
    "ordinal": ("baselines.memoryless", "by_ordinal"),
    "range": ("baselines.memoryless", "by_range"),
    "round-robin": ("baselines.memoryless", "in_turn"),
    "sticky": ("sticky.assignor", "assign"),
    "sticky-load": ("sticky_load.assignor", "assign"),
    "threshold-shed": ("pulsar.older_shedders", "by_threshold"),
    "uniform-shed": ("pulsar.older_shedders", "by_extremes"),
}
BY_COUNT = frozenset({"sticky"})  # their imbalance is measured by count, not by load


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """What an assignor wants: a target column, its memory for the next round, and words for what it did.

    `why(partition)` explains a move that validity alone does not; `note` says what was approximated or why nothing
    moves; `due` is when to look again, in the snapshot's seconds; `lower_bound` is a utilization that no assignment
    within the assignor's own bounds can stay below; `proven` says that no counts are more even (by-count assignors);
    `remembers(target)` is the memory if only that part of it happens (None: the memory is the same).
    """

    target: Codes
    why: Callable[[int], str] | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    due: float | None = None
    lower_bound: float | None = None
    proven: bool = True
    remembers: Callable[[Codes], Mapping[str, Any]] | None = None


class Assignor(Protocol):
    """One pure function; a memory in, a memory out; it knows no clock but `snapshot.now`."""

    def __call__(self, snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal: ...


def find(name: str) -> Assignor:
    """The assignor of this name. Raises ConfigError naming the ones that exist."""
    if name not in ASSIGNORS:
        raise ConfigError(f"Unknown assignor {shown(name)}. Known: {', '.join(sorted(ASSIGNORS))}")
    module, function = ASSIGNORS[name]
    assign: Assignor = getattr(import_module(f"rota.core.assignors.{module}"), function)
    return assign
