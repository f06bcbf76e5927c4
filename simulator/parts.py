"""What the actors of a simulated world are made of."""

from collections.abc import Callable
from dataclasses import dataclass

from rota.core.reconcile import Machine, assigned
from simulator.memory_log import MemoryLog
from simulator.memory_store import MemoryStore
from simulator.run import RunProcess
from simulator.table import MemoryTable


def leave_as_is(store: MemoryStore) -> None:
    """The store of an actor, as it ships."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the actors are made of; each default is what ships. With another one the checker counts what breaks instead
    of stopping there."""

    machine: Machine = assigned
    connected: Callable[[MemoryStore], object] = leave_as_is  # is given the store of each agent and run
    run: type[RunProcess] = RunProcess
    log: type[MemoryLog] = MemoryLog
    table: type[MemoryTable] = MemoryTable


SHIPPED = Parts()
