"""Observes a group for `rota.face.needs`: its records, its workers' Sparks, its sources and its tables.

Laws:
1. It changes nothing. Own records are read before live nodes: see `eligibility`.
2. A source or table that cannot be read, or does not answer within `ANSWER` seconds, is a fault in the observation. The
   others are read.
3. A table's log and positions are cached until the table has a newer version.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from socket import gethostname

from rota.coordination.group_reader import GroupReader
from rota.coordination.limits import explain_excess
from rota.coordination.records import Live
from rota.coordination.snapshot import Basis, read_basis
from rota.dataplane.ports import Query
from rota.dataplane.spark.probe import explain_silence
from rota.errors import ForeignTable, RotaError
from rota.face.answers import Questions
from rota.face.seen import OPEN, PipelineSeen, Seen
from rota.held import Held
from rota.ids import WAITING, worker_of
from rota.ledger.ledger import Ledger
from rota.ledger.values import LogEntry, Position
from rota.pipeline import Pipeline
from rota.registry import open_source, open_tables
from rota.run.eligibility import Facts, read_facts
from rota.run.rewritten import MAX_COMPARED_FILES, explain_rewritten
from rota.run.work import measure_lags, observe
from rota.settings import Settings

SILENCE = 2.0  # seconds in which a Spark's server answers; a busy one takes 12 ms
PROBES = 16  # Sparks that are probed at a time
ANSWER = 15.0  # seconds in which the source and the table of a pipeline answer


@dataclass(frozen=True, slots=True)
class TableSeen:
    """The content of a table, its log newest first. `refusal`: why it cannot be read, or is not this group's (`foreign`)."""

    past: tuple[LogEntry, ...] = ()
    positions: Mapping[str, Position] | None = None
    refusal: str = ""
    foreign: bool = False


class HealthReader:
    """Observes a group repeatedly."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[object, TableSeen]] = {}
        self._held = Held()
        self._questions = Questions[tuple[PipelineSeen, tuple[LogEntry, ...]]]()

    def read(self, tree: GroupReader, pipelines: Sequence[Pipeline]) -> tuple[Seen, Mapping[str, int]]:
        """Read the whole group, all pipelines at the same time.

        Returns:
            the observation, and partition -> its rows in the quarantine, of the newest commits.

        Raises:
            RotaError: the group itself cannot be read.
        """
        facts, basis = read_records(tree)
        questions = {one.name: partial(self._read_pipeline, tree, one, facts, basis) for one in pipelines}
        answers = self._questions.gather(questions, ANSWER)
        silent = f"its source or its table does not answer within {ANSWER:g} s. See whether its store runs"
        bad: Counter[str] = Counter()
        for _, past in answers.values():
            for entry in past:
                bad.update(entry.bad)
        seen = [answers[one][0] if one in answers else PipelineSeen(one, fault=silent) for one in questions]
        return make_seen(tree, facts, basis, seen), bad

    def _read_pipeline(
        self, tree: GroupReader, pipeline: Pipeline, facts: Facts, basis: Basis
    ) -> tuple[PipelineSeen, tuple[LogEntry, ...]]:
        table = self._read_table(tree, pipeline, basis)
        return read_pipeline(tree, pipeline, facts, table, self._held), table.past

    def _read_table(self, tree: GroupReader, pipeline: Pipeline, basis: Basis) -> TableSeen:
        try:
            main = open_tables(pipeline, tree.group, basis.meta.id, self._held).main
        except RotaError as error:
            return TableSeen(refusal=str(error))
        ids = list_ids(basis, pipeline)
        try:
            stamp = main.open(), basis.meta.id, ids
        except RotaError as error:
            return describe_refusal(error)
        known, table = self._tables.get(pipeline.name, (None, TableSeen()))
        if known != stamp or stamp[0] is None:
            table = read_table(main, ids)
            self._tables[pipeline.name] = stamp, table
        return table


def read_table(main: Ledger, ids: tuple[str, ...]) -> TableSeen:
    """Read the newest commits of a table, its positions, and why another program's commit stops it."""
    try:
        return TableSeen(main.read_recent_log(), main.read_positions(ids), main.explain_harm(MAX_COMPARED_FILES))
    except (RotaError, OSError) as error:
        return describe_refusal(error)


def describe_refusal(error: Exception) -> TableSeen:
    """Return the result for a table that could not be read for this reason."""
    if isinstance(error, ForeignTable):
        return TableSeen(refusal=str(error), foreign=True)
    return TableSeen(refusal=f"its table cannot be read: {error}")


def read_records(tree: GroupReader, pipelines: Container[str] | None = None) -> tuple[Facts, Basis]:
    """Read the records of the partitions of these pipelines, or of all, and of the group's workers. Raises RotaError."""
    facts = read_facts(tree, [p for p, name in tree.ids().items() if pipelines is None or name in pipelines])
    basis = read_basis(tree)
    return replace(facts, now=facts.now or tree.store.now()), basis


def make_seen(
    tree: GroupReader,
    facts: Facts,
    basis: Basis,
    pipelines: Sequence[PipelineSeen],
) -> Seen:
    """Return the observation, for which the workers' Sparks are probed."""
    reported = {path for path in tree.unreadable if path.rpartition("/")[2] in facts.unreadable}
    if left := tree.unreadable.keys() - reported:  # the observations of their own pipelines report them
        elsewhere = tree.ids().keys() - set(facts.partitions)
        reported |= {path for path in left if path.rpartition("/")[2] in elsewhere}
    announced = {
        worker_of(one): facts.lives.get(one) for one in basis.members
    }  # workers that join later are in the next observation
    reachable = {w: one.endpoint for w, one in announced.items() if one and one.endpoint and is_reachable(one)}
    return Seen(
        group=tree.group,
        now=facts.now,
        facts=facts,
        protocol=basis.meta.protocol,
        grace=basis.meta.grace,
        handover=Settings.from_environment().max_shutdown.total_seconds(),
        workers=basis.workers,
        starting=basis.starting,
        pins=basis.overrides.pins,
        labels={name: record.requires for name, record in basis.partitions.items()},
        joined_under={worker: record.protocol for worker, record in announced.items() if record},
        silent=find_silent(reachable),
        unable={worker: record.unable for worker, record in announced.items() if record and record.unable},
        twice=find_twice(tree),
        records={path: why for path, why in tree.unreadable.items() if path not in reported},
        pipelines=tuple(pipelines),
        absences=basis.controller.record.absences,
    )


def is_reachable(live: Live, here: str = gethostname()) -> bool:
    """Return whether this machine can reach the worker's Spark: one on loopback is reached from its own machine only."""
    host = (live.endpoint or "").removeprefix("sc://").partition("/")[0].rpartition(":")[0].strip("[]")
    return (host not in ("localhost", "::1") and not host.startswith("127.")) or live.host in ("", here)


def find_silent(endpoints: Mapping[str, str]) -> dict[str, str]:
    """Return worker -> why its Spark does not answer, for each Spark that does not."""
    if not endpoints:
        return {}
    with ThreadPoolExecutor(PROBES) as pool:
        whys = pool.map(lambda endpoint: explain_silence(endpoint, SILENCE), endpoints.values())
        return {worker: why for worker, why in zip(endpoints, whys, strict=True) if why}


def find_twice(tree: GroupReader) -> tuple[str, ...]:
    """Return the workers for whose id a second process waits."""
    names = (name for name in tree.store.children(tree.paths.lives) if name.endswith(WAITING))
    return tuple(sorted({name.partition("@")[0] for name in names}))


def list_ids(basis: Basis, pipeline: Pipeline) -> tuple[str, ...]:
    """Return the partitions of the pipeline that the group knows."""
    record = basis.partitions.get(pipeline.name)
    return tuple(map(pipeline.partition, record.keys)) if record else ()


def read_pipeline(
    tree: GroupReader, pipeline: Pipeline, facts: Facts, table: TableSeen, held: Held | None = None
) -> PipelineSeen:
    """Observe the source of the pipeline, for its partitions in `facts`, and add what its table reported."""
    ids = tuple(p for p in facts.partitions if p.partition(":")[0] == pipeline.name)
    seen = PipelineSeen(
        pipeline.name,
        positions=table.positions or {},
        stale=find_stale(table.past),
        gaps=find_gaps(table.past),
        refusal=table.refusal,
        foreign=table.foreign,
    )
    try:
        source = open_source(pipeline, held)
        readable = (p for p in ids if p not in facts.unreadable)
        query = Query(open_since=facts.now - OPEN, inspect=True)
        found = observe(source, facts.checkpoints, readable, query)
        keys = source.list_keys()
        known = set(ids)
        return replace(
            seen,
            ends=measure_lags(found, facts.checkpoints),
            rewritten=explain_rewritten(source, table.past),
            left_out=found.ignored,
            withheld=found.withheld,
            waiting=tuple(p for p in map(pipeline.partition, keys) if p not in known),
            room=explain_excess(tree, pipeline.name, keys),
        )
    except (RotaError, OSError) as error:
        return replace(seen, fault=f"its source cannot be read: {error}")


def find_stale(past: Iterable[LogEntry]) -> dict[str, str]:
    """Return partition -> which commit has an older token than a commit before it; empty if none has."""
    newest: dict[str, tuple[int, int]] = {}
    found: dict[str, str] = {}
    for commit in sorted(past, key=lambda commit: commit.version):
        for partition in commit.ranges if commit.op == "commit" else ():
            token = commit.tokens.get(partition, 0)
            last, version = newest.get(partition, (0, 0))
            if token < last:
                found[partition] = f"version {commit.version} has token {token}, version {version} had {last}"
            newest[partition] = max((last, version), (token, commit.version))
    return found


def find_gaps(past: Iterable[LogEntry]) -> dict[str, str]:
    """Return partition -> which commit does not start where the one before it ended; empty if all do.

    Skipped offsets are in the log and count as no gap.
    """
    ends: dict[str, int] = {}
    found: dict[str, str] = {}
    for commit in sorted(past, key=lambda commit: commit.version):
        for partition, (start, end) in commit.ranges.items() if commit.op in ("commit", "skip") else ():
            if ends.setdefault(partition, start) != start:
                found[partition] = (
                    f"version {commit.version} starts at {start}, the one before ended at {ends[partition]}"
                )
            ends[partition] = end
    return found
