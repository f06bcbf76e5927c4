"""Packs old commits of a log. Nothing else in rota shortens a log.

Laws:
1. No commit is lost: a commit is deleted only after its pack was read back and contains it byte for byte. Writing the packed
   commits back into the log's folder restores the log.
2. No transaction is lost. Commits are deleted only if each of the two newest checkpoints has the last number of every
   transaction that was set up to that checkpoint. Otherwise nothing is deleted, and an error names the transaction.
3. A commit that a run or a reader may have open stays: each from the older of these checkpoints on, each of the last day,
   and each after the newest checkpoint from before that day, because time travel within the day reads them.
4. Packs follow each other from version 0. A log that another program shortened is left as it is.

A packing process may end at any point, and two may run at once: each continues with what is not packed or deleted yet.
"""

from collections.abc import Mapping

import pyarrow as pa

from rota.deltalog import packs
from rota.deltalog.commits import list_actions, list_transactions
from rota.deltalog.delta_log import DeltaLog
from rota.deltalog.features import describe_error
from rota.deltalog.names import AFTER_CHANGE
from rota.errors import EnvironmentFailed

CHECKPOINTS = 2  # that always stay


def pack(log: DeltaLog, before: float, most: int = 20 * packs.PACKED) -> int:
    """Pack old commits.

    Args:
        before: only commits that were written before this time, in seconds since 1970.
        most: upper bound of the number of commits to pack.

    Returns: how many commits were deleted from the log's folder.
    Raises: EnvironmentFailed.
    """
    try:
        return _pack(log, before, most)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise EnvironmentFailed(
            f"The log of {log.location} could not be packed ({describe_error(error)}). It stays as it is, and the next "
            f"maintenance tries again"
        ) from error


def _pack(log: DeltaLog, before: float, most: int) -> int:
    commits, checkpoints = log.list_commits(), log.list_checkpoints()
    if len(checkpoints) < CHECKPOINTS:
        return 0
    newest = sorted(checkpoints)[-CHECKPOINTS:]
    aged = {version for version, written in commits.items() if written < before}
    reached = max((version for version in aged.intersection(checkpoints) if version <= newest[0]), default=-1)
    old = {version for version in aged if version <= reached and version < newest[0]}
    made, gone = packs.list_packs(log.store), 0
    wanted = _list_wanted(made, old)[: most // packs.PACKED]
    if not wanted:
        return 0
    check_transactions(log, commits, {version: checkpoints[version] for version in newest})
    for number in wanted:
        versions = range(number * packs.PACKED, (number + 1) * packs.PACKED)
        there = [version for version in versions if version in commits]
        if len(there) == packs.PACKED:
            packs.write_pack(log.store, number, [log.read_commit(version) for version in versions])
        kept = packs.read_pack(log.store, packs.name_pack(number))
        if any(kept.get(version) != log.read_commit(version) for version in there):
            raise ValueError(f"{packs.name_pack(number)} does not have what the log has")
        for version in there:
            log.delete_commit(version)
        gone += len(there)
    return gone


def _list_wanted(made: list[int], old: set[int]) -> list[int]:
    """Return the numbers of packs to write, and of written packs whose commits are still in the log's folder."""
    wanted = [number for number in made if any(v // packs.PACKED == number for v in old)]
    number = len(made) if made == list(range(len(made))) else -1
    while number >= 0 and all(v in old for v in range(number * packs.PACKED, (number + 1) * packs.PACKED)):
        wanted.append(number)
        number += 1
    return wanted


def check_transactions(log: DeltaLog, commits: Mapping[int, float], checkpoints: Mapping[int, list[str]]) -> None:
    """Raise EnvironmentFailed if law 2 fails for the commits in the log's folder. Packed commits are not read: an earlier
    call checked them."""
    numbers: dict[str, int] = {}
    behind = -1
    for checkpoint in sorted(checkpoints):
        for version in sorted(v for v in commits if behind < v <= checkpoint):
            numbers |= list_transactions(list_actions(log.read_commit(version), ("txn",)))
        known = list_transactions(log.read_checkpoint(checkpoints[checkpoint]))
        if lost := next((name for name, number in numbers.items() if known.get(name) != number), ""):
            raise EnvironmentFailed(
                f"Checkpoint {checkpoint} of {log.location} does not have {lost} as the log has it ({numbers[lost]}). The "
                f"log was left whole. Take delta.setTransactionRetentionDuration away, if the table has it; {AFTER_CHANGE}"
            )
        numbers, behind = known, checkpoint
