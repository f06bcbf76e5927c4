"""What the actors of a simulated world are made of."""

from collections.abc import Callable
from dataclasses import dataclass

from rota.coordination.memory import MemoryServer, MemoryStore
from rota.coordination.publication import Publication, Published, Term, publish
from rota.coordination.tree import Tree
from rota.core import Plan, plan
from rota.core.reconcile import Machine, assigned
from rota.sim.table import Table


@dataclass(frozen=True, slots=True)
class Parts:
    """What the actors are made of; each default is what ships. With another one the checker counts what breaks instead
    of stopping there."""

    machine: Machine = assigned
    connect: Callable[[MemoryServer], MemoryStore] = MemoryStore  # of the agents
    plan: Callable[..., Plan] = plan
    publish: Callable[[Tree, Term, Publication], Published] = publish
    table: Callable[[], Table] = Table


SHIPPED = Parts()
