"""Claims and releases one partition, for tests of what follows: the engine does several at a time."""

from rota.coordination.group_state import GroupState
from rota.coordination.ownership import Ownership, claim_all, release_all
from rota.errors import OwnershipError


class NotOwner(OwnershipError):
    """The own record was not taken or set free."""


def claim_one(
    tree: GroupState, incarnation: str, partition: str, own_version: int, assign_version: int | None = None
) -> Ownership:
    """Raises NotOwner, Unavailable, Unknown."""
    claimed = claim_all(tree, incarnation, {partition: own_version}, assign_version)
    _refuse(partition, claimed.refused.get(partition))
    return claimed.taken[partition]


def release_one(
    tree: GroupState, incarnation: str, partition: str, own_version: int, assign_version: int | None = None
) -> None:
    """Raises NotOwner, Unavailable, Unknown."""
    _refuse(partition, release_all(tree, incarnation, {partition: own_version}, assign_version).get(partition))


def _refuse(partition: str, why: str | None) -> None:
    if why is not None:
        raise NotOwner(f"{partition} was not taken or set free: {why}", partition=partition)
