"""What one look at a group saw: the values that `needs` judges."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Self

from rota.core.values import Worker
from rota.dataplane.ports import Withheld
from rota.ledger.values import Position
from rota.run.eligibility import Facts

HANDOVER = 120.0  # seconds that an owner has to let go, where nothing else is set: ROTA_MAX_SHUTDOWN
OPEN = 300.0  # seconds that a transaction of the source may hold records back
SLOW = "slow"  # the kind of a tick for which Dagster waited in vain


@dataclass(frozen=True, slots=True)
class PipelineSeen:
    """What a pipeline's source and tables say. Mappings are by partition; `ends` are (offset, end offset), `left_out` is by
    path. `fault`: why the source cannot be read. `refusal`: why the table is not this group's (`foreign`), or cannot be
    read. `waiting` are keys of the source that the group does not know, and `room` says why it takes none."""

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
class Tick:
    """A tick of a sensor: when it began and ended, whether it has, and if it failed, why, and the kind of that error, where
    it is known. `lost`: the code server did not answer it, which says nothing of the sensor."""

    at: float
    end: float = 0.0
    done: bool = True
    failed: bool = False
    why: str = ""
    lost: bool = False
    kind: str = ""


@dataclass(frozen=True, slots=True)
class SensorSeen:
    """A sensor of Dagster's. `failing` is for how many seconds its ticks are known to have failed, with the reason `why`
    and the `kind` of that error; `quiet` the seconds since its last tick began; `pipeline` whose it is, if it is of one."""

    name: str
    on: bool = True
    failing: float = 0.0
    why: str = ""
    quiet: float = 0.0
    pipeline: str = ""
    kind: str = ""

    @classmethod
    def of_ticks(cls, name: str, on: bool, ticks: Sequence[Tick], now: float, pipeline: str = "") -> Self:
        """By its last ticks, newest first. One that goes on says nothing yet, but that it began; one that was slow says
        nothing alone, for it lasted as long as Dagster waits."""
        done = [tick for tick in ticks if tick.done]
        quiet = max(0.0, now - ticks[0].at) if ticks else 0.0
        failed = list(takewhile(lambda tick: tick.failed and not tick.lost, done))
        if [tick.kind for tick in failed] == [SLOW]:
            failed = []
        why, kind = (failed[0].why, failed[0].kind) if failed else ("", "")
        return cls(name, on, _span(failed), why, quiet, pipeline, kind)


def blame_sensors(ticks: Sequence[Sequence[Tick]]) -> list[list[Tick]]:
    """The same ticks of all sensors of a code server. A tick that was not answered, while another was in the second half of
    its time, is its sensor's own: the server is there, and that tick takes longer than Dagster waits."""
    answers = [tick.end for of in ticks for tick in of if tick.done and not tick.lost]
    why = (
        "a tick of it takes longer than Dagster waits for it: see what it waits for, or give its code server more room"
    )
    return [
        [
            replace(tick, lost=False, why=why, kind=SLOW)
            if tick.lost and any((tick.at + tick.end) / 2 < answer < tick.end for answer in answers)
            else tick
            for tick in of
        ]
        for of in ticks
    ]


def measure_silence(ticks: Sequence[Sequence[Tick]]) -> float:
    """Seconds for which a code server is known to have answered none of its sensors, by what `blame_sensors` says of their
    ticks; 0 where it answered one since."""
    done = [tick for of in ticks for tick in of if tick.done and tick.kind != SLOW]
    answered = max((tick.end for tick in done if not tick.lost), default=0.0)
    lost = [tick for tick in done if tick.lost and tick.end > answered]
    if not lost:
        return 0.0
    since = max(answered, min(tick.at for tick in lost))
    return max(max(tick.end for tick in lost) - since, 0.001)


def _span(ticks: Sequence[Tick]) -> float:
    """Seconds from when the first began until the last ended; newest first. More than 0 where there is one."""
    return max(ticks[0].end - ticks[-1].at, 0.001) if ticks else 0.0


@dataclass(frozen=True, slots=True)
class FailedRuns:
    """Runs of a pipeline for one worker, or rebalances of a group, that failed in a row.

    `why` is the reason of the last one, `kind` the class of its error where known, and `ago` the seconds since it ended.
    `worker` is the worker that the runs worked for; empty for rebalances.
    """

    times: int
    why: str = ""
    kind: str = ""
    ago: float = 0.0
    worker: str = ""


def count_failures(ended: Iterable[tuple[str, bool]]) -> dict[str, tuple[int, int]]:
    """Counts for each worker its runs that failed in a row, up to its newest run.

    Args:
        ended: for each run that ended, newest first, its worker and whether it failed.

    Returns:
        Worker -> the place of its newest run in `ended`, and the number of failures. A worker whose newest run succeeded has
        no entry: the success of one worker's run is no sign that another worker can work.
    """
    found: dict[str, tuple[int, int]] = {}
    well: set[str] = set()
    for place, (worker, failed) in enumerate(ended):
        if not failed:
            well.add(worker)
        elif worker not in well:
            newest, times = found.get(worker, (place, 0))
            found[worker] = newest, times + 1
    return found


@dataclass(frozen=True, slots=True)
class DagsterSeen:
    """What Dagster reports about itself.

    `silent`: why it cannot be asked. `locations`: code locations that are not loaded, with the reason. `lost`: those whose
    server does not answer, with the seconds for which that is known. `unserved`: pipelines that none serves. `failed`:
    pipelines whose last runs for a worker failed. `rebalances`: groups whose last rebalances failed. `refused`: pipeline
    file -> what of it Dagster does not serve, and why.
    """

    silent: str = ""
    locations: Mapping[str, str] = field(default_factory=dict)
    sensors: Sequence[SensorSeen] = ()
    lost: Mapping[str, float] = field(default_factory=dict)
    unserved: Sequence[str] = ()
    failed: Mapping[str, Sequence[FailedRuns]] = field(default_factory=dict)
    rebalances: Mapping[str, FailedRuns] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look saw of a group. `now` is the server's clock. `silent`: worker -> why its Spark does not answer.
    `unable`: worker -> why it says that it can do no work.
    `joined_under`: worker -> the protocol that was the group's when it joined. `twice`: the workers for whose id a second
    process waits. `refused`: file -> why it is not served. `undeclared`: pipelines of the group that no file declares.
    `labels`: pipeline -> what its workers must carry. `absences`: gone worker -> when a rebalance noticed it, in
    server seconds."""

    group: str
    now: float
    facts: Facts
    protocol: str = "assigned"
    grace: float = 0.0
    handover: float = HANDOVER
    workers: Sequence[Worker] = ()
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
