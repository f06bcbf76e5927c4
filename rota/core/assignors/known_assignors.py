"""The assignors by name, and the shape of an assignor and its proposal."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from rota.errors import ConfigError, shown

if TYPE_CHECKING:
    from rota.core.values import Codes, Snapshot

# name -> module below rota.core.assignors, and its function. A module is imported when it is first used.
ASSIGNORS: dict[str, tuple[str, str]] = {
    "avg-shed": ("pulsar.avg_shed", "assign"),
    "hash": ("baselines.memoryless", "assign_hash"),
    "ordinal": ("baselines.memoryless", "assign_ordinal"),
    "range": ("baselines.memoryless", "assign_range"),
    "round-robin": ("baselines.memoryless", "assign_round_robin"),
    "sticky": ("sticky.assignor", "assign"),
    "sticky-load": ("sticky_load.assignor", "assign"),
    "threshold-shed": ("pulsar.older_shedders", "assign_by_threshold"),
    "uniform-shed": ("pulsar.older_shedders", "assign_by_extremes"),
}
BY_COUNT = frozenset({"sticky"})  # assignors whose imbalance is measured by count, not by load


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """The target that an assignor wants, its memory for the next call, and its reasons.

    `explain(partition)` explains a voluntary move. `note` states what was approximated or why nothing moves. `due` is
    when to plan again, in the snapshot's seconds. `lower_bound`: no assignment within the assignor's own budget has a
    lower peak utilization. `proven`: no valid counts are more even; read only for assignors by count. `remember(target)`
    returns the memory if only the moves of `target` happen; if it is None, `memory` is kept.
    """

    target: "Codes"
    explain: Callable[[int], str] | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    due: float | None = None
    lower_bound: float | None = None
    proven: bool = True
    remember: "Callable[[Codes], Mapping[str, Any]] | None" = None


class Assignor(Protocol):
    """A pure function. It reads the memory that its last proposal returned, and no clock but `snapshot.now`."""

    def __call__(self, snapshot: "Snapshot", options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal: ...


def find_assignor(name: str) -> Assignor:
    """Return the assignor of this name. Raises ConfigError with the known names."""
    if name not in ASSIGNORS:
        raise ConfigError(f"Unknown assignor {shown(name)}. Known: {', '.join(sorted(ASSIGNORS))}")
    module, function = ASSIGNORS[name]
    assign: Assignor = getattr(import_module(f"rota.core.assignors.{module}"), function)
    return assign
