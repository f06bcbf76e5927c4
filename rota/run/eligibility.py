"""Who may work on a partition, and why nobody may: one pure function of what was read, and the one call that reads it.

Law: a partition is worked on by the live incarnation that its own record names, while the target of that worker has it, no
earlier run works on it, and it is not parked. A record that cannot be read leaves its partition alone.

Law: `read_facts` reads own records before live nodes. So an owner that is not among the live nodes is gone; read the other
way round, one that joined between the two reads would be taken for gone.

Law: `read_rights` is step 1 of a batch. The run's own node is there before anything is read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rota.coordination.group_reader import GroupReader
from rota.coordination.ownership import Ownership
from rota.coordination.parking import explain_unreadable, is_waiting, tell_park
from rota.coordination.records import Checkpoint, Live, Parked
from rota.coordination.views import OwnView, Read, RunView
from rota.ids import worker_of


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read of some partitions, by partition unless said otherwise. `now` is the server's clock, in seconds."""

    partitions: tuple[str, ...]
    owns: Mapping[str, OwnView]
    epoch: int
    targets: Mapping[str, frozenset[str]]  # by worker
    lives: Mapping[str, Live | None]  # by incarnation; None: what it announces cannot be read
    runs: tuple[RunView, ...]
    parked: Mapping[str, Parked]
    now: float
    checkpoints: Mapping[str, Read[Checkpoint]]
    unreadable: Mapping[str, str]  # why a record of the partition cannot be read


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Each partition is in one of the two: `owners` says which incarnation may work on it, `obstacles` why nobody may. Of
    these, `busy` are those that a run works on."""

    owners: Mapping[str, str]
    obstacles: Mapping[str, str]
    busy: frozenset[str]


def judge(facts: Facts, incarnation: str | None = None, run: str = "") -> Eligibility:
    """Who may work on each partition; for a run, whether its `incarnation` may. `run` is the name of the run's own node:
    of two runs of one incarnation the one that registered first works, so neither waits for the other."""
    owners = {p: own.incarnation for p, own in facts.owns.items() if own.incarnation}
    busy = _find_busy(facts, run)
    obstacles: dict[str, str] = {}
    worked_on: set[str] = set()
    for p in facts.partitions:
        owner = owners.get(p, "")
        if reason := _explain_owner(facts, p, owner, incarnation):
            obstacles[p] = reason
        elif (p, owner) in busy:
            obstacles[p] = f"run {busy[p, owner]} works on it"
            worked_on.add(p)
        elif reason := _explain_hold(facts, p):
            obstacles[p] = reason
    free = {p: owners[p] for p in facts.partitions if p not in obstacles}
    return Eligibility(free, obstacles, frozenset(worked_on))


def _explain_owner(facts: Facts, partition: str, owner: str, incarnation: str | None) -> str:
    """Why the owner may not work on the partition, or is not the one asked about; empty where it may."""
    if not owner:
        return facts.unreadable.get(partition) or "nobody owns it"
    if incarnation not in (None, owner):
        return facts.unreadable.get(partition) or f"{owner} owns it"
    if owner not in facts.lives:
        return f"its owner {owner} is gone"
    if facts.lives[owner] is None:
        return f"what its owner {owner} announces cannot be read"
    worker = worker_of(owner)
    if partition not in facts.targets.get(worker, frozenset()):
        return f"the target of {worker} does not name it"
    return ""


def _explain_hold(facts: Facts, partition: str) -> str:
    """Why the partition is left alone for now, whoever owns it."""
    if partition in facts.parked and is_waiting(facts.parked[partition], facts.now):
        return f"it is parked: {tell_park(partition, facts.parked[partition])}"
    return facts.unreadable.get(partition, "")


def _find_busy(facts: Facts, run: str) -> dict[tuple[str, str], str]:
    """(partition, incarnation) -> the run that works on it; for the run of the node `run`, those that were there first."""
    mine = next((one.czxid for one in facts.runs if one.name == run), None)
    others = [one for one in facts.runs if not run or (mine is not None and one.czxid < mine)]
    return {(p, one.incarnation): one.run_id for one in others for p in one.partitions}


def read_facts(tree: GroupReader, partitions: Iterable[str], incarnation: str | None = None) -> Facts:
    """Reads what `judge` needs, in the order that its law asks for; for a run, of its `incarnation` alone.

    A run calls it after it made its own node: whoever takes a partition over by force sees that a run is there, and whoever
    finds no run knows that none will come. Raises Unavailable.
    """
    wanted = tuple(dict.fromkeys(partitions))
    owns = tree.owned(wanted)
    epoch, targets = _read_targets(tree, incarnation)
    lives = {one.incarnation: one.record for one in tree.live()}
    runs = tree.runs({incarnation} if incarnation else {one.incarnation for one in owns.values() if one.incarnation})
    parked = {p: one.record for p, one in tree.parked().items() if p in owns}
    now = tree.store.now() if parked else 0.0
    checkpoints = tree.checkpoints(owns)
    unread = {p: why for p in wanted if (why := explain_unreadable(tree, p))} if tree.unreadable else {}
    return Facts(wanted, owns, epoch, targets, lives, runs, parked, now, checkpoints, unread)


def _read_targets(tree: GroupReader, incarnation: str | None) -> tuple[int, Mapping[str, frozenset[str]]]:
    """The epoch in force and the target of the incarnation's worker, or of all."""
    if incarnation is None:
        head, targets = tree.targets()
        return head.record.epoch, {worker: one.partitions for worker, one in targets.items()}
    worker = worker_of(incarnation)
    target = tree.target(worker)
    return (tree.head().record.epoch, {worker: target.partitions}) if target else (0, {})


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
