"""What there is to consume, and which incarnation may consume it: the one place that computes lag and finds the owners
for a click.

Law: it only reads; it writes nothing and starts no Spark. A poll costs a folder listing and a few reads.
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

LAUNCH = 1.0  # seconds that a launch takes at least: a file that will have settled by then is work for that run
MAX_MEASURED_PARTITIONS = 1_000  # partitions of a group whose lags an epoch records: the next epoch waits for them


@dataclass(frozen=True, slots=True)
class Work:
    """What one incarnation has to do in its next run: partition -> (offset, latest)."""

    incarnation: str
    worker: str
    lags: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Owners:
    """The partitions of a click by the incarnation that owns them; `skipped` has the reason for each other one."""

    by_incarnation: Mapping[str, tuple[str, ...]]
    skipped: Mapping[str, str]
    busy: frozenset[str]  # of `skipped`: a run works on them now


def read_lags(tree: GroupReader, source: Source, partitions: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return partition -> (offset, end offset). A partition with an unreadable checkpoint or source is left out.

    A partition without a checkpoint that starts at its end counts as behind by all it has: the first run records its
    start.
    """
    asked = tuple(partitions)
    checkpoints = tree.checkpoints(asked)
    return measure_lags(source, checkpoints, (p for p in asked if not explain_unreadable(tree, p)))


def read_group_lags(tree: GroupReader, pipelines: Iterable[Pipeline]) -> dict[str, int]:
    """Return how many offsets each partition of these pipelines is behind.

    A pipeline whose source does not answer is left out. For more than `MAX_MEASURED_PARTITIONS` the result is empty.
    """
    records = tree.partitions()
    if sum(len(record.keys) for record in records.values()) > MAX_MEASURED_PARTITIONS:
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
    """Return what `read_lags` does, from checkpoints that were read before."""
    wanted = tuple(partitions)
    new = [p for p in wanted if p not in checkpoints]
    starts = source.choose_starts(dict.fromkeys(new, 0), later=new)
    offsets = {p: checkpoints[p].record.offset if p in checkpoints else starts[p] for p in wanted}
    return {p: (offsets[p], end) for p, end in source.read_ends(tuple(offsets)).items()}


def find_work(
    tree: GroupReader, pipeline: Pipeline, source: Source, incarnation: str | None = None
) -> tuple[Work, ...]:
    """Return what each live incarnation, or the given one, could consume now: see `measure_work`."""
    return measure_work(_read_facts(tree, pipeline, incarnation), source, incarnation)


def _read_facts(tree: GroupReader, pipeline: Pipeline, incarnation: str | None) -> Facts:
    asked = _list_known(tree, pipeline) if incarnation is None else _list_target(tree, pipeline, incarnation)
    return read_facts(tree, asked, incarnation)


class WorkWatcher:
    """Polls for the work of a pipeline, for the sensor and for a run.

    Invariant: `find_work` returns what the function `find_work` would return. A poll reads ZooKeeper again only if its
    zxid changed. It asks the source each time.

    Args:
        tree: the group.
        pipeline: the pipeline.
        source: the source of a run. None opens the pipeline's source at each poll, as a run finds it that is launched
            now.
        incarnation: the incarnation whose work is sought; None for all of the group.
    """

    def __init__(
        self, tree: GroupReader, pipeline: Pipeline, source: Source | None = None, incarnation: str | None = None
    ) -> None:
        self.tree, self.pipeline, self.source, self.incarnation = tree, pipeline, source, incarnation
        self.lives: Mapping[str, Live | None] = {}  # incarnation -> its announcement; None: it cannot be read
        self._readings = Readings(tree.store)

    def look(self) -> None:
        """Read which incarnations are live, and drop all other cached facts if ZooKeeper changed. Raises Unavailable."""
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
    """Return the source as a run finds it that is launched now.

    If a file is written again meanwhile, the run waits for it as for any new file.
    """
    return source.ahead(LAUNCH) if isinstance(source, Rests) else source


def measure_work(facts: Facts, source: Source, incarnation: str | None = None) -> tuple[Work, ...]:
    """Return the partitions that each incarnation, or the given one, may work on and that lag. Incarnations without
    work are left out.

    A partition whose source cannot be read, or whose retry is due, counts as behind by one. The run then reports why it
    still waits, or consumes it.
    """
    owners = judge(facts, incarnation).owners
    seen = measure_lags(source, facts.checkpoints, owners)
    behind: dict[str, dict[str, tuple[int, int]]] = {}
    for p, incarnation in owners.items():
        at, end = seen.get(p, (0, 0))
        if at < end or p not in seen or p in facts.parked:
            behind.setdefault(incarnation, {})[p] = (at, max(end, at + 1))
    return tuple(Work(i, worker_of(i), _portion(facts, lags)) for i, lags in sorted(behind.items()))


def _portion(facts: Facts, lags: Mapping[str, tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
    """Return as many partitions as one run takes. Those that were consumed longest ago come first; of those alike, the
    ones with most lag.
    """
    if len(first := next(portions(tuple(lags)))) == len(lags):
        return lags
    done = facts.checkpoints

    def turn(p: str) -> tuple[int, int, str]:
        at, end = lags[p]
        return done[p].node.mzxid if p in done else 0, at - end, p

    return {p: lags[p] for p in sorted(lags, key=turn)[: len(first)]}


def read_owners(tree: GroupReader, pipeline: Pipeline, partitions: Iterable[str]) -> Owners:
    """Return the partitions of a click or a backfill by current owner. The call never waits for a partition that none
    may work on.
    """
    wanted, known = tuple(dict.fromkeys(partitions)), set(_list_known(tree, pipeline))
    judged = judge(read_facts(tree, (p for p in wanted if p in known)))
    found: dict[str, list[str]] = {}
    for p, incarnation in judged.owners.items():
        found.setdefault(incarnation, []).append(p)
    unknown = {p: "no worker owns it" for p in wanted if p not in known}
    shares = {i: tuple(ps) for i, ps in sorted(found.items())}
    return Owners(shares, {**judged.obstacles, **unknown}, judged.busy)


def _list_known(tree: GroupReader, pipeline: Pipeline) -> tuple[str, ...]:
    """Return the partitions of the pipeline that the group balances."""
    record = tree.partitions().get(pipeline.name)
    return tuple(map(pipeline.partition, record.keys)) if record else ()


def _list_target(tree: GroupReader, pipeline: Pipeline, incarnation: str) -> tuple[str, ...]:
    """Return the partitions of the pipeline in the target of the incarnation's worker."""
    target = tree.target(worker_of(incarnation))
    return tuple(sorted(p for p in target.partitions if pipeline_of(p) == pipeline.name)) if target else ()
