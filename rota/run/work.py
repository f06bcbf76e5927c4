"""Computes the lag of partitions and the incarnations that may consume them, for sensors and runs, and the owners for a
click. No other module does.

Law: the module only reads, and starts no Spark. A poll costs a folder listing and a few reads.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from rota.coordination.group_reader import GroupReader
from rota.coordination.membership import portions
from rota.coordination.parking import explain_unreadable
from rota.coordination.readings import Readings
from rota.coordination.records import Checkpoint, Live
from rota.coordination.views import Read
from rota.dataplane.ports import ENDS, Observation, Query, Source
from rota.errors import RotaError
from rota.held import Held
from rota.ids import worker_of
from rota.pipeline import Pipeline
from rota.registry import open_source
from rota.run.eligibility import Facts, judge, read_facts

LAUNCH = 1.0  # seconds that a launch takes at least: a file that settles within them is work for the launched run
LAUNCHED = Query(ahead=LAUNCH)
MAX_MEASURED_PARTITIONS = 1_000  # partitions of a group whose lags an epoch records: the next epoch waits for them


@dataclass(frozen=True, slots=True)
class Work:
    """What one incarnation has to do in its next run: partition -> (offset, latest)."""

    incarnation: str
    worker: str
    lags: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Owners:
    """The partitions of a click, by owner; `skipped` has the reason for each partition that no run may work on."""

    by_incarnation: Mapping[str, tuple[str, ...]]
    skipped: Mapping[str, str]
    busy: frozenset[str]  # of `skipped`: a run works on them now


def read_lags(tree: GroupReader, source: Source, partitions: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return partition -> (offset, end offset). A partition with an unreadable checkpoint or source is left out.

    Without a checkpoint the lag counts all that the source has, even if the partition will start at its end. So a run
    starts, and records where the partition starts.
    """
    asked = tuple(partitions)
    checkpoints = tree.checkpoints(asked)
    seen = observe(source, checkpoints, (p for p in asked if not explain_unreadable(tree, p)))
    return measure_lags(seen, checkpoints)


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


def observe(
    source: Source, checkpoints: Mapping[str, Read[Checkpoint]], partitions: Iterable[str], query: Query = ENDS
) -> Observation:
    """Observe the partitions for `measure_lags`, with the starts of those that have no checkpoint."""
    wanted = tuple(partitions)
    return source.observe(wanted, replace(query, starts=tuple(p for p in wanted if p not in checkpoints)))


def measure_lags(seen: Observation, checkpoints: Mapping[str, Read[Checkpoint]]) -> dict[str, tuple[int, int]]:
    """Return the lags as `read_lags` does, from checkpoints and an observation that was made after they were read."""
    return {
        p: (checkpoints[p].record.offset if p in checkpoints else seen.starts[p], end) for p, end in seen.ends.items()
    }


def find_work(
    tree: GroupReader, pipeline: Pipeline, source: Source, incarnation: str | None = None
) -> tuple[Work, ...]:
    """Return what each live incarnation, or the given one, could consume now: see `observe_work`."""
    return observe_work(_read_facts(tree, pipeline, incarnation), source, incarnation)[0]


def _read_facts(tree: GroupReader, pipeline: Pipeline, incarnation: str | None) -> Facts:
    known = _list_known(tree, pipeline) if incarnation is None else None
    return read_facts(tree, known, incarnation, pipeline.name)


class WorkWatcher:
    """Polls for the work of a pipeline, for the sensor and for a run.

    Invariant: the method `find_work` returns what the function `find_work` would return. A poll reads ZooKeeper only if
    the zxid changed. It observes the source each time.

    Args:
        tree: the group.
        pipeline: the pipeline.
        source: the source of a run. None: each poll opens the pipeline's source, and counts files that will be ready when
            a run that is launched now begins. If such a file is written again, the run waits for it as for any new file.
        incarnation: the incarnation whose work is sought; None for all of the group.
        held: the cache for sources that polls open.
    """

    def __init__(
        self,
        tree: GroupReader,
        pipeline: Pipeline,
        source: Source | None = None,
        incarnation: str | None = None,
        held: Held | None = None,
    ) -> None:
        self.tree, self.pipeline, self.source, self.incarnation = tree, pipeline, source, incarnation
        self._held = held or Held()
        self.lives: Mapping[str, Live | None] = {}  # incarnation -> its announcement; None: it cannot be read
        self.seen = Observation(ends={})  # of the last poll
        self._facts = Facts()
        self._readings = Readings(tree.store)

    def poll(self) -> None:
        """Read which incarnations are live, and drop all other cached facts if ZooKeeper changed. Raises Unavailable."""
        self._readings.refresh()
        self.lives = self._readings.keep("live", lambda: {one.incarnation: one.record for one in self.tree.live()})

    def find_work(self) -> tuple[Work, ...]:
        """Return what each incarnation could consume now. Raises Unavailable."""
        facts = self._readings.keep(
            "facts",
            lambda: _read_facts(self.tree, self.pipeline, self.incarnation),
            lasts=lambda found: not found.parked,  # a parked partition becomes due without a change in ZooKeeper
        )
        source, query = (self.source, ENDS) if self.source else (open_source(self.pipeline, self._held), LAUNCHED)
        self._facts = facts
        found, self.seen = observe_work(facts, source, self.incarnation, query)
        return found

    def owns_partitions(self) -> bool:
        """Return whether at the last poll the incarnation owned a partition that its target names."""
        return any(map(self._owns, self._facts.partitions))

    def awaits_partitions(self) -> bool:
        """Return whether at the last poll the target of the incarnation named partitions that it does not own."""
        return not all(map(self._owns, self._facts.partitions))

    def _owns(self, partition: str) -> bool:
        own = self._facts.owns.get(partition)
        return own is not None and own.incarnation == self.incarnation


def observe_work(
    facts: Facts, source: Source, incarnation: str | None = None, query: Query = ENDS
) -> tuple[tuple[Work, ...], Observation]:
    """Return the partitions that each incarnation, or the given one, may work on and that lag, with the observation.
    Incarnations without work are left out.

    A partition that cannot be read, or whose retry is due, counts as behind by one. The run then consumes the partition,
    or reports why it still waits.
    """
    owners = judge(facts, incarnation).owners
    seen = observe(source, facts.checkpoints, owners, query)
    lags = measure_lags(seen, facts.checkpoints)
    behind: dict[str, dict[str, tuple[int, int]]] = {}
    for p, incarnation in owners.items():
        at, end = lags.get(p, (0, 0))
        if at < end or p not in lags or p in facts.parked:
            behind.setdefault(incarnation, {})[p] = (at, max(end, at + 1))
    return tuple(Work(i, worker_of(i), _portion(facts, mine)) for i, mine in sorted(behind.items())), seen


def _portion(facts: Facts, lags: Mapping[str, tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
    """Return the partitions of one run. Those that were consumed longest ago are chosen first; if equal, those with the
    most lag.
    """
    if len(first := next(portions(tuple(lags)))) == len(lags):
        return lags
    done = facts.checkpoints

    def turn(p: str) -> tuple[int, int, str]:
        at, end = lags[p]
        return done[p].node.mzxid if p in done else 0, at - end, p

    return {p: lags[p] for p in sorted(lags, key=turn)[: len(first)]}


def read_owners(tree: GroupReader, pipeline: Pipeline, partitions: Iterable[str]) -> Owners:
    """Return the partitions of a click or a backfill by current owner."""
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
