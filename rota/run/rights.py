"""What a run holds: step 1 of a batch. Law: the run's own node is there before anything is read; see `eligibility`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rota.coordination.group_reader import GroupReader
from rota.coordination.ownership import Ownership
from rota.coordination.records import Checkpoint, Parked
from rota.coordination.views import Read
from rota.run.eligibility import judge, read_facts


@dataclass(frozen=True, slots=True)
class Rights:
    """The partitions that a run holds, those it does not with the reason, and what goes with both."""

    held: Mapping[str, Ownership]
    dropped: Mapping[str, str]
    parked: Mapping[str, Parked]  # those held although they were parked: their time has come
    checkpoints: Mapping[str, Read[Checkpoint]]  # read before the table is opened
    epoch: int
    endpoint: str | None


def read_rights(tree: GroupReader, incarnation: str, node: str, partitions: Iterable[str]) -> Rights:
    """What `incarnation` holds of `partitions` for the run whose node is at `node`."""
    tree.store.sync()
    facts = read_facts(tree, partitions, incarnation)
    judged = judge(facts, incarnation, node.rpartition("/")[2])
    held = {p: Ownership(p, incarnation, facts.owns[p].version, facts.owns[p].token) for p in judged.owners}
    record = facts.lives[incarnation] if held else None
    known = {p: read for p, read in facts.checkpoints.items() if p in held}
    return Rights(held, judged.obstacles, facts.parked, known, facts.epoch, record.endpoint if record else None)


def holds(tree: GroupReader, ownership: Ownership) -> bool:
    """Whether the own record is this moment what it was when the right was read."""
    tree.store.sync()
    now = tree.owned((ownership.partition,)).get(ownership.partition)
    return now is not None and (now.incarnation, now.version) == (ownership.incarnation, ownership.version)
