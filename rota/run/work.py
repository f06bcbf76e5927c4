"""What there is to consume, and who may: the one place where lag is computed, and where a click finds its owners.

Law: only looking; nothing is written and no Spark is started. A look costs a folder listing and a few reads.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from rota.coordination.group_reader import GroupReader
from rota.coordination.membership import portions
from rota.coordination.parking import explain_unreadable
from rota.coordination.readings import Readings
from rota.coordination.records import Checkpoint, Live
from rota.coordination.views import Read
from rota.dataplane.ports import Rests, Source
from rota.errors import RotaError
from rota.ids import pipeline_of, worker_of
from rota.pipeline import Pipeline
from rota.registry import open_source
from rota.run.eligibility import Facts, judge, read_facts

LAUNCH = 1.0  # seconds that a launch takes at least: what will have rested by then is work for the run that comes
MEASURED = 1_000  # partitions of a group whose lags are told with an epoch: the next one waits for the look


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
    busy: frozenset[str]  # of `skipped`: a run works on them now


def read_lags(tree: GroupReader, source: Source, partitions: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Partition -> (offset, end offset). One that no run ever looked at, and that starts at its end, counts as behind by all
    it has: the run that looks writes down where it starts. One whose checkpoint or source cannot be read is left out."""
    asked = tuple(partitions)
    checkpoints = tree.checkpoints(asked)
    return measure_lags(source, checkpoints, (p for p in asked if not explain_unreadable(tree, p)))


def read_group_lags(tree: GroupReader, pipelines: Iterable[Pipeline]) -> dict[str, int]:
    """How many offsets each partition of these pipelines is behind. A pipeline whose source cannot be asked is left out;
    nothing is told of more than `MEASURED` partitions."""
    records = tree.partitions()
    if sum(len(record.keys) for record in records.values()) > MEASURED:
        return {}
    found: dict[str, int] = {}
    for pipeline in pipelines:
        with suppress(RotaError, OSError):
            ids = map(pipeline.partition, records[pipeline.name].keys if pipeline.name in records else ())
            found |= {p: end - at for p, (at, end) in read_lags(tree, open_source(pipeline), ids).items()}
    return found


def measure_lags(
    source: Source, checkpoints: Mapping[str, Read[Checkpoint]], partitions: Iterable[str]
) -> dict[str, tuple[int, int]]:
    """What `read_lags` says, of checkpoints that were read before."""
    wanted = tuple(partitions)
    new = [p for p in wanted if p not in checkpoints]
    starts = source.choose_starts(dict.fromkeys(new, 0), later=new)
    offsets = {p: checkpoints[p].record.offset if p in checkpoints else starts[p] for p in wanted}
    return {p: (offsets[p], end) for p, end in source.read_ends(tuple(offsets)).items()}


def find_work(
    tree: GroupReader, pipeline: Pipeline, source: Source, incarnation: str | None = None
) -> tuple[Work, ...]:
    """What each live incarnation, or the one that is named, could consume now: see `measure_work`."""
    return measure_work(_read_facts(tree, pipeline, incarnation), source, incarnation)


def _read_facts(tree: GroupReader, pipeline: Pipeline, incarnation: str | None) -> Facts:
    asked = _list_known(tree, pipeline) if incarnation is None else _list_target(tree, pipeline, incarnation)
    return read_facts(tree, asked, incarnation)


class WorkWatcher:
    """Looks for the work of a pipeline again and again, for the sensor and for a run.

    Invariant: `find_work` returns what the function `find_work` would return. A look reads ZooKeeper again only if its stamp
    changed. It asks the source each time.

    Args:
        tree: the group.
        pipeline: the pipeline.
        source: the source of a run; None opens the pipeline's source at each look, as a run finds it that is launched now.
        incarnation: the incarnation of which the work is sought; None for all of the group.
    """

    def __init__(
        self, tree: GroupReader, pipeline: Pipeline, source: Source | None = None, incarnation: str | None = None
    ) -> None:
        self.tree, self.pipeline, self.source, self.incarnation = tree, pipeline, source, incarnation
        self.lives: Mapping[str, Live | None] = {}  # incarnation -> its announcement; None: it cannot be read
        self._readings = Readings(tree.store)

    def look(self) -> None:
        """Read which incarnations are live, and forget everything else if ZooKeeper changed. Raises Unavailable."""
        self._readings.refresh()
        self.lives = self._readings.keep("live", lambda: {one.incarnation: one.record for one in self.tree.live()})

    def find_work(self) -> tuple[Work, ...]:
        """Return what each incarnation could consume now. Raises Unavailable."""
        facts = self._readings.keep(
            "facts",
            lambda: _read_facts(self.tree, self.pipeline, self.incarnation),
            lasts=lambda found: not found.parked,  # a parked partition is due without a change in ZooKeeper
        )
        return measure_work(facts, self.source or foresee(open_source(self.pipeline)), self.incarnation)


def foresee(source: Source) -> Source:
    """The source as a run finds it that is launched now. A file that is written again meanwhile lets the run wait: it goes
    on as any run for which nothing comes."""
    return source.ahead(LAUNCH) if isinstance(source, Rests) else source


def measure_work(facts: Facts, source: Source, incarnation: str | None = None) -> tuple[Work, ...]:
    """The partitions that each incarnation, or the one that is named, may work on and that lag. An incarnation with nothing
    to do is left out.

    A source that cannot be read counts as behind by one, and so does a partition that was parked until now: the run that
    looks says why it waits, or that it no longer does."""
    owners = judge(facts, incarnation).owners
    seen = measure_lags(source, facts.checkpoints, owners)
    behind: dict[str, dict[str, tuple[int, int]]] = {}
    for p, incarnation in owners.items():
        at, end = seen.get(p, (0, 0))
        if at < end or p not in seen or p in facts.parked:
            behind.setdefault(incarnation, {})[p] = (at, max(end, at + 1))
    return tuple(Work(i, worker_of(i), _portion(facts, lags)) for i, lags in sorted(behind.items()))


def _portion(facts: Facts, lags: Mapping[str, tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
    """As many as one run takes; the rest goes with the next. The partition that was consumed longest ago comes first, so
    that all have their turn; of those alike the one with most lag."""
    if len(first := next(portions(tuple(lags)))) == len(lags):
        return lags
    done = facts.checkpoints

    def turn(p: str) -> tuple[int, int, str]:
        at, end = lags[p]
        return done[p].node.mzxid if p in done else 0, at - end, p

    return {p: lags[p] for p in sorted(lags, key=turn)[: len(first)]}


def read_owners(tree: GroupReader, pipeline: Pipeline, partitions: Iterable[str]) -> Owners:
    """The partitions of a click or a backfill by current owner; one that nobody may work on now is never waited for."""
    wanted, known = tuple(dict.fromkeys(partitions)), set(_list_known(tree, pipeline))
    judged = judge(read_facts(tree, (p for p in wanted if p in known)))
    found: dict[str, list[str]] = {}
    for p, incarnation in judged.owners.items():
        found.setdefault(incarnation, []).append(p)
    unknown = {p: "nobody owns it" for p in wanted if p not in known}
    shares = {i: tuple(ps) for i, ps in sorted(found.items())}
    return Owners(shares, {**judged.obstacles, **unknown}, judged.busy)


def _list_known(tree: GroupReader, pipeline: Pipeline) -> tuple[str, ...]:
    """The partitions of the pipeline that the group balances."""
    record = tree.partitions().get(pipeline.name)
    return tuple(map(pipeline.partition, record.keys)) if record else ()


def _list_target(tree: GroupReader, pipeline: Pipeline, incarnation: str) -> tuple[str, ...]:
    """The partitions of the pipeline in the target of the incarnation's worker."""
    target = tree.target(worker_of(incarnation))
    return tuple(sorted(p for p in target.partitions if pipeline_of(p) == pipeline.name)) if target else ()
