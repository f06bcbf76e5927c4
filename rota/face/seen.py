"""The result of one observation of a group, from which `needs` finds the needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rota.core.values import Worker
from rota.dataplane.ports import Withheld
from rota.face.dagster_state import DagsterSeen
from rota.ledger.values import Position
from rota.run.eligibility import Facts

HANDOVER = 120.0  # seconds that an owner has to release a partition if ROTA_MAX_SHUTDOWN is not set
OPEN = 300.0  # seconds that a transaction of the source may hold records back


@dataclass(frozen=True, slots=True)
class PipelineSeen:
    """What the source and the table of a pipeline report.

    Args:
        name: the pipeline.
        ends: partition -> its offset and its end offset.
        positions: partition -> what the table holds for it.
        rewritten: partition -> which of its files changed after they were consumed.
        left_out: path -> why the source does not read it.
        stale: partition -> which commit has an older token than a commit before it.
        gaps: partition -> which commit does not start where the one before it ended.
        withheld: partition -> the open transaction that holds its records back.
        fault: why the source cannot be read.
        refusal: why the table cannot be read, or is not this group's.
        foreign: the table is not this group's.
        waiting: partitions of the source that the group does not know.
        room: why the group adds none of them.
    """

    name: str
    ends: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    positions: Mapping[str, Position] = field(default_factory=dict)
    rewritten: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    stale: Mapping[str, str] = field(default_factory=dict)
    gaps: Mapping[str, str] = field(default_factory=dict)
    withheld: Mapping[str, Withheld] = field(default_factory=dict)
    fault: str = ""
    refusal: str = ""
    foreign: bool = False
    waiting: Sequence[str] = ()
    room: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one observation found of a group.

    Args:
        group: the group.
        now: the clock of ZooKeeper's server.
        facts: the records of the partitions, of live nodes, targets and runs.
        protocol: the protocol of the group.
        grace: seconds for which a rebalance waits for a lost worker.
        handover: seconds that an owner has to release a partition.
        workers: the live workers that can own partitions, or report why they cannot.
        starting: the live workers that await their first runs.
        pins: partition -> the worker that it is pinned to.
        labels: pipeline -> the labels that it requires of its workers.
        joined_under: worker -> the protocol of the group when it joined.
        silent: worker -> why its Spark does not answer.
        unable: worker -> why it reports that it can do no work.
        twice: workers for whose id a second process waits.
        records: path -> why the record cannot be read.
        refused: pipeline file -> why rota does not serve it.
        undeclared: pipelines of the group that no file declares.
        pipelines: what sources and tables report.
        dagster: what Dagster reports; None if it was not read.
        absences: lost worker -> when a rebalance noticed it, in server seconds.
    """

    group: str
    now: float
    facts: Facts
    protocol: str = "assigned"
    grace: float = 0.0
    handover: float = HANDOVER
    workers: Sequence[Worker] = ()
    starting: Sequence[Worker] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    joined_under: Mapping[str, str] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    unable: Mapping[str, str] = field(default_factory=dict)
    twice: Sequence[str] = ()
    records: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    undeclared: Sequence[str] = ()
    pipelines: Sequence[PipelineSeen] = ()
    dagster: DagsterSeen | None = None
    absences: Mapping[str, float] = field(default_factory=dict)
