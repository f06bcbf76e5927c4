"""What an assignor is, and which there are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from rota.core.values import Codes, Snapshot
from rota.errors import ConfigError

# name -> the module below rota.core.assignors with its `assign` function; imported when first used.
ASSIGNORS: dict[str, str] = {"sticky": "sticky"}
BY_COUNT = frozenset({"sticky"})  # their imbalance is measured by count, not by load


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """What an assignor wants: a target column, its memory for the next round, and words for what it did.

    `why(partition)` explains a move that validity alone does not; `lower_bound` is a utilization that no assignment can
    beat, None if the imbalance is optimal; `note` says what was approximated or why nothing moves; `due` is when to
    look again, in the snapshot's seconds.
    """

    target: Codes
    why: Callable[[int], str] | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    due: float | None = None
    lower_bound: float | None = None


class Assignor(Protocol):
    """One pure function; a memory in, a memory out; it knows no clock but `snapshot.now`."""

    def __call__(self, snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal: ...


def find(name: str) -> Assignor:
    """The assignor of this name. Raises ConfigError naming the ones that exist."""
    if name not in ASSIGNORS:
        raise ConfigError(f"Unknown assignor {name!r}. Known: {', '.join(sorted(ASSIGNORS))}")
    assign: Assignor = import_module(f"rota.core.assignors.{ASSIGNORS[name]}").assign
    return assign
