"""Whether the table, or the source, is an older one.

Law: a caller that assigns offsets checks the table first, and gives the source what the table consumed. A source that
lost offsets would assign them anew: consumed records would be read again, and newer ones would be skipped.
"""

from collections.abc import Mapping

from rota.coordination.records import Checkpoint
from rota.dataplane.ports import Observation
from rota.errors import ForeignTable
from rota.ledger.ledger import Ledger
from rota.ledger.values import Position

ADOPT = "Type: rota adopt"


def explain_restored(location: str, was: Checkpoint | None, now: Position) -> ForeignTable | None:
    """Return why an operator must look at a partition whose checkpoint is beyond its table, or names another; None if
    it is well.
    """
    if was and was.offset > (now.offset or 0):
        behind = f"the checkpoint is at {was.offset} and {location} at {now.offset or 0}"
        return ForeignTable(f"{behind}: an older table was restored", step=ADOPT)
    if was and was.table not in ("", now.table):
        return ForeignTable(f"{location} is not the table it was", step=ADOPT)
    return None


def explain_lost(seen: Observation, main: Ledger, positions: Mapping[str, Position]) -> dict[str, str]:
    """Return partition -> why its source lost offsets that the table consumed, or gave them to other data.

    Args:
        seen: the observation, for a query with `Consumed(positions, main)`.
        main: the pipeline's main table.
        positions: what the table consumed.
    """
    return {p: f"{main.location} is at {positions[p].offset}, and {why}" for p, why in seen.lost.items()}
