"""Whether the table, or the source, is an older one. Law: each caller that assigns offsets checks this first.

A source that lost offsets would assign them anew. Consumed records would be read again, and newer ones would be
skipped.
"""

from collections.abc import Iterable, Mapping

from rota.coordination.records import Checkpoint
from rota.dataplane.ports import HasLeaderEpochs, Remembers, Source
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


def find_lost_offsets(source: Source, main: Ledger, positions: Mapping[str, Position]) -> dict[str, str]:
    """Return partition -> why its source has assigned fewer offsets than the table consumed, or assigned lost ones
    anew. No offset may be assigned in these.

    Args:
        source: the pipeline's source.
        main: the pipeline's main table.
        positions: what the table consumed. They are read before this call, because a commit follows the offsets that it
            consumes.
    """
    if not isinstance(source, Remembers):
        return {}
    ends = source.read_assigned_ends(tuple(positions))
    behind = {p: ends[p] for p, one in positions.items() if (one.offset or 0) > ends[p]}
    log = main.read_log_back_to(
        behind
    )  # empty where a partition begins at an offset that the source has not reached yet
    lost = {p: source.explain_lost(p, end) for p, end in behind.items() if any(one.goes_beyond(p, end) for one in log)}
    if isinstance(source, HasLeaderEpochs):
        noted = {p: (one.offset or 0, one.leader_epoch or 0) for p, one in positions.items() if _states_epoch(one)}
        lost |= source.find_cut({p: one for p, one in noted.items() if p not in behind})
    return {p: f"{main.location} is at {positions[p].offset}, and {why}" for p, why in lost.items()}


def _states_epoch(position: Position) -> bool:
    return bool(position.offset) and position.leader_epoch not in (None, -1)


def read_leader_epochs(source: Source, partitions: Iterable[str]) -> Mapping[str, int]:
    """Return the leader epochs under which the source assigned the offsets of these partitions; empty if it has none."""
    return source.read_leader_epochs(partitions) if isinstance(source, HasLeaderEpochs) else {}
