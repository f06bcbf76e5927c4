"""What there is to consume, and who may: the one place where lag is computed, and where a click finds its owners.

Law: only looking; nothing is written and no Spark is started. A look costs a folder listing and a few reads.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rota.coordination.membership import portions
from rota.coordination.parking import unreadable, waiting
from rota.coordination.records import Checkpoint
from rota.coordination.tree import Read, Tree
from rota.dataplane.landing import Landing
from rota.ids import worker_of
from rota.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Work:
    """What one incarnation has to do in its next run: partition -> (offset, latest)."""

    incarnation: str
    worker: str
    lags: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Owners:
    """The partitions of a click by the incarnation that owns them; `skipped` says why nobody works on the others."""

    by_incarnation: Mapping[str, tuple[str, ...]]
    skipped: Mapping[str, str]


def discover(pipeline: Pipeline) -> tuple[str, ...]:
    """The keys that the source has now."""
    return Landing.of(pipeline).keys()


def left_out(pipeline: Pipeline) -> Mapping[str, str]:
    """What lies in the source and is never read, with the reason: path -> why."""
    return Landing.of(pipeline).left_out()


def lags(tree: Tree, pipeline: Pipeline, partitions: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Partition -> (offset, latest). One that no run ever looked at, and that starts at its end, counts as behind by all
    it has: the run that looks writes down where it starts. One whose checkpoint or source cannot be read is left out."""
    source, asked = Landing.of(pipeline), tuple(partitions)
    checkpoints = tree.checkpoints(asked)
    wanted = tuple(p for p in asked if not unreadable(tree, p))
    return {p: (_offset(checkpoints.get(p), source), latest) for p, latest in source.latest(wanted).items()}


def backlog(tree: Tree, pipeline: Pipeline) -> tuple[Work, ...]:
    """For each live incarnation: what it owns, has in its target, no run works on, is not parked, and lags. None without
    any of these.

    A source that cannot be looked at counts as behind by one, and so does what was parked until now: the run that looks
    says why it waits, or that it does no more."""
    found: dict[str, list[str]] = {}
    workable = _workable(tree, pipeline)[0]
    busy = _busy(tree, workable)
    for partition, incarnation in workable.items():
        if partition not in busy:
            found.setdefault(incarnation, []).append(partition)
    asked = [p for ps in found.values() for p in ps]
    seen, parked = lags(tree, pipeline, asked), tree.parked()
    looked = {p: seen.get(p, (0, 0)) for p in asked if not unreadable(tree, p)}
    behind = {
        p: (at, max(latest, at + 1))
        for p, (at, latest) in looked.items()
        if at < latest or p not in seen or p in parked
    }
    mine = ((i, {p: behind[p] for p in ps if p in behind}) for i, ps in sorted(found.items()))
    return tuple(Work(i, worker_of(i), _portion(tree, lags)) for i, lags in mine if lags)


def _portion(tree: Tree, lags: Mapping[str, tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
    """As many as one run takes; the rest goes with the next. Whoever was consumed longest ago comes first, so that all
    have their turn, and of those alike the ones with most lag."""
    if len(first := next(portions(tuple(lags)))) == len(lags):
        return lags
    done = tree.checkpoints(lags)

    def turn(p: str) -> tuple[int, int, str]:
        at, latest = lags[p]
        return done[p].node.mzxid if p in done else 0, at - latest, p

    return {p: lags[p] for p in sorted(lags, key=turn)[: len(first)]}


def owners(tree: Tree, pipeline: Pipeline, partitions: Iterable[str]) -> Owners:
    """The partitions of a click or a backfill by current owner; one that nobody may work on now is never waited for."""
    workable, why = _workable(tree, pipeline)
    busy = _busy(tree, workable)
    found: dict[str, list[str]] = {}
    skipped: dict[str, str] = {}
    for partition in dict.fromkeys(partitions):
        if partition not in workable:
            skipped[partition] = why.get(partition, "nobody owns it")
        elif partition in busy:
            skipped[partition] = f"run {busy[partition]} works on it"
        else:
            found.setdefault(workable[partition], []).append(partition)
    return Owners({i: tuple(ps) for i, ps in sorted(found.items())}, skipped)


def _busy(tree: Tree, workable: Mapping[str, str]) -> dict[str, str]:
    """Partition -> the run that works on it for the incarnation that may consume it."""
    runs = tree.runs(set(workable.values()))
    return {p: run.run_id for run in runs for p in run.partitions if workable.get(p) == run.incarnation}


def _workable(tree: Tree, pipeline: Pipeline) -> tuple[dict[str, str], dict[str, str]]:
    """Partition -> the live incarnation that may consume it now, and the reasons for those that nobody may."""
    record = tree.partitions().get(pipeline.name)
    partitions = [pipeline.partition(key) for key in record.keys] if record else []
    own = tree.owned(partitions)
    live = {one.incarnation: one.record for one in tree.live()}
    assigned = tree.meta().protocol == "assigned"
    targets = tree.targets()[1] if assigned else {}
    parked = tree.parked()
    now = tree.store.now() if any(p in parked for p in partitions) else 0.0
    workable: dict[str, str] = {}
    why: dict[str, str] = {}
    for p in partitions:
        owner = own[p].incarnation if p in own else None
        target = targets.get(worker_of(owner)) if owner else None
        if owner is None:
            why[p] = unreadable(tree, p) or "nobody owns it"
        elif owner not in live:
            why[p] = f"its owner {owner} is gone"
        elif live[owner] is None:
            why[p] = f"what its owner {owner} announces cannot be read"
        elif assigned and (target is None or p not in target.partitions):
            why[p] = f"it is on its way from {worker_of(owner)} to another worker"
        elif p in parked and waiting(parked[p].record, now):
            why[p] = f"it is parked: {parked[p].record.reason}"
        elif reason := unreadable(tree, p):
            why[p] = reason
        else:
            workable[p] = owner
    return workable, why


def _offset(checkpoint: Read[Checkpoint] | None, source: Landing) -> int:
    return checkpoint.record.offset if checkpoint else source.first(0, later=True)
