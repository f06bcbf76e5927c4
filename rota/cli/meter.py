"""Measures one group repeatedly, for `rota export`: the observation of `rota status`, events, and the tables' totals.

Laws:
1. It changes nothing, and what it has in memory can be lost: see `rota.face.events`.
2. A table that does not answer within `COUNTING` seconds has no totals in that observation. Its commits are counted on.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rota.cli.observer import GroupObserver
from rota.errors import RotaError, Undecodable
from rota.face.answers import Questions
from rota.face.events import Events, follow_events
from rota.face.metrics import Measured
from rota.held import Held
from rota.ledger.totals import Totals, count_commits

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.pipeline import Pipeline

COUNTING = 3.0  # seconds in which the totals of the tables are read
LATER = 5  # epochs that are read beyond those that an observation needs: they may be published meanwhile


@dataclass(slots=True)
class GroupMeter:
    """Measures one group. Not thread-safe."""

    tree: "GroupState"
    observer: GroupObserver = field(init=False)
    _events: Events | None = None
    _totals: dict[str, Totals] = field(default_factory=dict)
    _held: Held = field(default_factory=Held)
    _questions: Questions[Totals | None] = field(default_factory=Questions)

    def __post_init__(self) -> None:
        self.observer = GroupObserver(self.tree)

    def measure(self) -> Measured:
        """Measure the group once. Raises RotaError if the group itself cannot be read."""
        found = self.observer.observe()
        before, epoch = self._events, found.seen.facts.epoch
        try:
            ring = self.tree.refusals().ring
        except Undecodable:  # the needs report it
            ring = tuple(before.ring) if before else ()
        new = 0 if before is None else max(0, epoch - before.epoch)
        epochs = self.tree.epochs(last=new + LATER) if new else ()
        self._events = follow_events(found.seen, epochs, ring, before)
        return Measured(found.seen, found.needs, self._events, self._count())

    def _count(self) -> dict[str, Totals]:
        meta = self.tree.meta().id
        asked = {one.name: partial(self._count_pipeline, one, meta) for one in self.observer.pipelines}
        answers = self._questions.gather(asked, COUNTING)
        return {name: totals for name, totals in answers.items() if totals is not None}

    def _count_pipeline(self, pipeline: "Pipeline", meta: str) -> Totals | None:
        """Return the totals of its table; None if the table cannot be read, or is not this pipeline's."""
        from rota.registry import open_tables

        try:
            main = open_tables(pipeline, self.tree.group, meta, self._held).main
            if table := main.open():
                main.check_owner(table)
            self._totals[pipeline.name] = totals = count_commits(table, self._totals.get(pipeline.name))
        except (RotaError, OSError):  # the needs report it
            return None
        return totals
