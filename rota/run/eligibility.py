"""Which incarnation may work on a partition, and what prevents it: a pure function of facts that were read, and the
call that reads them.

Laws:
1. A partition may be worked on by the live incarnation that its own record names, if the target of that worker contains
   it, no earlier run works on it, and it is not parked. A partition with an unreadable record is left alone.
2. `read_facts` reads own records before live nodes. So an owner that is not among the live nodes is gone. In the other
   order, an owner that joined between the two reads would be taken for gone.
3. `read_rights` is step 1 of a batch. The run creates its own node before it reads anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rota.coordination.group_reader import GroupReader
from rota.coordination.ownership import Ownership
from rota.coordination.parking import explain_unreadable, is_waiting, tell_park
from rota.coordination.records import Checkpoint, Live, Parked
from rota.coordination.views import OwnView, Read, RunView, Target
from rota.ids import pipeline_of, worker_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The records of some partitions, and of the workers.

    Mappings are by partition. Only `targets` and `written` (the time when a target was last written) are by worker, and
    `lives` (None: the record cannot be read) is by incarnation. `now` is the server's clock; times are in server seconds.
    `unreadable`: why a record of the partition cannot be read.
    """

    partitions: tuple[str, ...] = ()
    owns: Mapping[str, OwnView] = field(default_factory=dict)
    epoch: int = 0
    targets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    written: Mapping[str, float] = field(default_factory=dict)
    lives: Mapping[str, Live | None] = field(default_factory=dict)
    runs: tuple[RunView, ...] = ()
    parked: Mapping[str, Parked] = field(default_factory=dict)
    now: float = 0.0
    checkpoints: Mapping[str, Read[Checkpoint]] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Each partition is in `owners`, with the incarnation that may work on it, or in `obstacles`, with the reason why
    no incarnation may. `busy` are those in `obstacles` because a run works on the partition.
    """

    owners: Mapping[str, str]
    obstacles: Mapping[str, str]
    busy: frozenset[str]


def judge(facts: Facts, incarnation: str | None = None, run: str = "") -> Eligibility:
    """Decide which incarnation may work on each partition.

    Args:
        facts: what `read_facts` returned.
        incarnation: the incarnation of a run; all other owners are obstacles then.
        run: the name of the run's own node. Of two runs of one incarnation the first to register works, and the other
            waits.
    """
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
    """Return why the owner may not work on the partition, or is not `incarnation`; empty if it may."""
    if not owner:
        return facts.unreadable.get(partition) or "no worker owns it"
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
    """Return why no owner may work on the partition now; empty if its owner may."""
    if partition in facts.parked and is_waiting(facts.parked[partition], facts.now):
        return f"it is parked: {tell_park(partition, facts.parked[partition])}"
    return facts.unreadable.get(partition, "")


def _find_busy(facts: Facts, run: str) -> dict[tuple[str, str], str]:
    """Return (partition, incarnation) -> the run that works on it. For the run of the node `run`, only earlier runs
    count.
    """
    mine = next((one.czxid for one in facts.runs if one.name == run), None)
    others = [one for one in facts.runs if not run or (mine is not None and one.czxid < mine)]
    return {(p, one.incarnation): one.run_id for one in others for p in one.partitions}


def read_facts(
    tree: GroupReader, partitions: Iterable[str] | None, incarnation: str | None = None, pipeline: str = ""
) -> Facts:
    """Read the facts for `judge`, in the order of law 2; for a run, only those of its `incarnation`.

    A run calls this function after it created its node. So a worker that takes a partition by force sees the node. If
    that worker sees no node, no run will begin. Raises Unavailable.

    Args:
        partitions: the ids. None: the partitions of `pipeline` in the target of the incarnation's worker.
    """
    epoch, targets = _read_targets(tree, incarnation)
    if partitions is None:
        partitions = sorted(p for one in targets.values() for p in one.partitions if pipeline_of(p) == pipeline)
    wanted = tuple(dict.fromkeys(partitions))
    owns = tree.owned(wanted)
    lives = {one.incarnation: one.record for one in tree.live()}
    runs = tree.runs({incarnation} if incarnation else {one.incarnation for one in owns.values() if one.incarnation})
    parked = {p: one.record for p, one in tree.parked().items() if p in owns}
    now = tree.store.now() if parked else 0.0
    checkpoints = tree.checkpoints(owns)
    unread = {p: why for p in wanted if (why := explain_unreadable(tree, p))} if tree.unreadable else {}
    return Facts(
        partitions=wanted,
        owns=owns,
        epoch=epoch,
        targets={worker: one.partitions for worker, one in targets.items()},
        written={worker: one.written for worker, one in targets.items()},
        lives=lives,
        runs=runs,
        parked=parked,
        now=now,
        checkpoints=checkpoints,
        unreadable=unread,
    )


def _read_targets(tree: GroupReader, incarnation: str | None) -> tuple[int, Mapping[str, Target]]:
    """Return the epoch in force, with the target of the incarnation's worker, or all targets."""
    if incarnation is None:
        head, targets = tree.targets()
        return head.record.epoch, targets
    worker = worker_of(incarnation)
    target = tree.target(worker)
    return (tree.head().record.epoch, {worker: target}) if target else (0, {})


@dataclass(frozen=True, slots=True)
class Rights:
    """The partitions that a run may work on (`held`), partition -> why it may not (`dropped`), and records that were
    read with them.
    """

    held: Mapping[str, Ownership]
    dropped: Mapping[str, str]
    parked: Mapping[str, Parked]  # of `held`: their retry is due
    checkpoints: Mapping[str, Read[Checkpoint]]  # read before the table is opened
    epoch: int
    endpoint: str | None


def read_rights(tree: GroupReader, incarnation: str, node: str, partitions: Iterable[str]) -> Rights:
    """Return the rights of `incarnation` to `partitions`, for the run with the node `node`. Raises Unavailable."""
    tree.store.sync()
    facts = read_facts(tree, partitions, incarnation)
    judged = judge(facts, incarnation, node.rpartition("/")[2])
    held = {p: Ownership(p, incarnation, facts.owns[p].version, facts.owns[p].token) for p in judged.owners}
    record = facts.lives[incarnation] if held else None
    known = {p: read for p, read in facts.checkpoints.items() if p in held}
    return Rights(held, judged.obstacles, facts.parked, known, facts.epoch, record.endpoint if record else None)


def holds(tree: GroupReader, ownership: Ownership) -> bool:
    """Return whether the own record still has the owner and version of `ownership`."""
    tree.store.sync()
    now = tree.owned((ownership.partition,)).get(ownership.partition)
    return now is not None and (now.incarnation, now.version) == (ownership.incarnation, ownership.version)
