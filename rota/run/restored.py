"""Detects that ZooKeeper, the table or the source was restored from an older copy, for runs and reports.

Law: a caller that assigns offsets checks the table first, and passes its positions to the source. Otherwise a source
that lost offsets would assign them anew: consumed records would be read again, and newer ones would be skipped.
"""

from collections.abc import Mapping

from rota.coordination.records import Checkpoint
from rota.dataplane.ports import Observation
from rota.errors import ForeignTable
from rota.ledger.ledger import Ledger
from rota.ledger.values import Position

ADOPT = "Run `rota adopt`"


def explain_older_zookeeper(token: int, now: Position, place: str = "its table") -> ForeignTable | None:
    """Return why ZooKeeper is older than the table; None if it is not.

    Args:
        token: the token of the partition's live owner.
        now: the partition's position in the table.
        place: the name of the table in the reason.
    """
    if (now.token or 0) <= token:
        return None
    seen = f"{place} has seen token {now.token}, above {token} of the partition's owner"
    return ForeignTable(f"{seen}: this ZooKeeper was restored", step=ADOPT)


def explain_older_table(was: Checkpoint | None, now: Position, place: str = "its table") -> ForeignTable | None:
    """Return why the table is not the one that the checkpoint of a partition describes; None if it is.

    Args:
        was: the checkpoint; None if there is none.
        now: the partition's position in the table.
        place: the name of the table in the reason.
    """
    if was and was.offset and not now.table:
        gone = f"the checkpoint is at {was.offset}, and there is no table: its disk is not mounted, or it was dropped"
        return ForeignTable(gone, step="Mount it, or begin anew with `rota adopt`")
    if was and was.offset > (now.offset or 0):
        behind = f"the checkpoint is at {was.offset} and {place} at {now.offset or 0}"
        return ForeignTable(f"{behind}: an older table was restored", step=ADOPT)
    if was and was.table not in ("", now.table):
        return ForeignTable(f"{place} is not the table that it was", step=ADOPT)
    return None


def explain_lost(seen: Observation, main: Ledger, positions: Mapping[str, Position]) -> dict[str, str]:
    """Return partition -> why its source lost offsets that the table consumed, or gave them to other data.

    Args:
        seen: the observation, for a query with `Consumed(positions, main)`.
        main: the pipeline's main table.
        positions: what the table consumed.
    """
    return {p: f"{main.location} is at {positions[p].offset}, and {why}" for p, why in seen.lost.items()}
