"""The protocols that a worker can follow: a machine per worker, events in, instructions out.

`assigned` follows the target that a controller publishes. A leaderless protocol is another machine of the same shape and
needs no controller; it stands here under its name, and every world runs it.
"""

from dataclasses import dataclass

from rota.core.reconcile import MACHINES, Machine
from rota.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Protocol:
    """A machine, and whether somebody publishes targets for it."""

    machine: Machine
    controller: bool


LED = frozenset({"assigned"})
PROTOCOLS = {name: Protocol(machine, name in LED) for name, machine in MACHINES.items()}


def protocol(name: str) -> Protocol:
    """The protocol of this name. Raises ConfigError naming those that exist."""
    if name not in PROTOCOLS:
        raise ConfigError(f"Unknown protocol {name!r}. Known: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
