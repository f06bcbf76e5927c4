"""The protocols by name, their options, and the `decide` function of each protocol without a controller."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rota.core.assignors.options import Option, read_options
from rota.errors import ConfigError, shown

if TYPE_CHECKING:
    from rota.core.protocols.observation import Decide

ASSIGNED = "assigned"  # a controller publishes each worker's target
# name -> module below rota.core.protocols, which has `decide`. A module is imported when it is first used.
ALONE: dict[str, str] = {"claim": "claim", "ordinal": "ordinal", "race": "race"}
OPTIONS: dict[str, Mapping[str, Option]] = {
    "claim": {
        "steal": Option("even", words=("even", "published")),
        "strategy": Option("balanced", words=("balanced", "greedy")),
        "interval": Option(30.0, least=0.1),
    },
    "ordinal": {"slices": Option("published", words=("published", "spread", "sticky"))},
    "race": {
        "decide": Option("announced", words=("announced", "fastest")),
        "lease": Option(60.0, least=1.0),
        "min_grab": Option(5.0),
        "delay": Option(0.2, least=0.001),
        "head_start": Option(1.0, most=1.0),
    },
}


def check_protocol(name: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each option of the protocol. `assigned` has its assignor's, unchecked. Raises ConfigError."""
    if name == ASSIGNED:
        return dict(options)
    if not isinstance(name, str) or name not in ALONE:
        raise ConfigError(f"Unknown protocol {shown(name)}. Known: {', '.join(sorted((ASSIGNED, *ALONE)))}")
    return read_options(f"protocol {name}", options, OPTIONS[name])


def find_protocol(name: str) -> "Decide | None":
    """Return the function with which a worker decides, None under `assigned`. Raises ConfigError with the known names."""
    if name == ASSIGNED:
        return None
    check_protocol(name, {})
    decide: Decide = import_module(f"rota.core.protocols.{ALONE[name]}").decide
    return decide
