"""The state of Dagster for `rota.face.needs`, and the rules that compute it from rows.

Law: two adapters read the rows, `sensors/seen.py` from Dagster's storage and `rota/cli/dagster_health.py` over GraphQL. Both
read as many rows (`TICKS`, `RUNS`), and neither judges them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile

from rota.ids import PARKED_TAG, WORKER_TAG

TICKS = 20  # the newest ticks that are read of a sensor
RUNS = 30  # the newest ended runs that are read of a job: of all workers, and clicks
LOST = "DagsterUserCodeUnreachableError"  # the kind of a tick that no code server answered
SLOW = "slow"  # the kind of a tick that lasted longer than Dagster waits
TOO_SLOW = (
    "a tick of it takes longer than Dagster waits for it: see what it waits for, or give its code server more room"
)


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick of a sensor.

    Args:
        at: when it began.
        end: when it ended.
        done: it has ended.
        failed: it failed.
        why: the reason.
        kind: the class of its error.
    """

    at: float
    end: float = 0.0
    done: bool = True
    failed: bool = False
    why: str = ""
    kind: str = ""

    @property
    def lost(self) -> bool:
        """Whether the code server did not answer it, which proves nothing about the sensor."""
        return self.kind == LOST


@dataclass(frozen=True, slots=True)
class SensorRow:
    """A sensor of rota's as Dagster stores it, with its newest ticks, newest first, and its pipeline, if it has one."""

    name: str
    on: bool
    ticks: Sequence[Tick]
    location: str = ""
    pipeline: str = ""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run that ended, as Dagster stores it. `ended` is in seconds since 1970."""

    id: str
    tags: Mapping[str, str]
    failure: bool
    ended: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether the run failed for more than its parked partitions: those are retried, and the others continue."""
        return self.failure and PARKED_TAG not in self.tags


@dataclass(frozen=True, slots=True)
class SensorSeen:
    """A sensor, judged.

    Args:
        name: its name.
        on: it is turned on.
        failing: for how many seconds its ticks are known to have failed; 0 if the last one succeeded.
        why: the reason of the last failure.
        quiet: seconds since its last tick began.
        pipeline: its pipeline, if it has one.
        kind: the class of the last error.
    """

    name: str
    on: bool = True
    failing: float = 0.0
    why: str = ""
    quiet: float = 0.0
    pipeline: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class FailedRuns:
    """Runs of a pipeline for one worker, or rebalances of a group, that failed in a row.

    Args:
        times: their number.
        why: the reason of the last one.
        kind: the class of its error, if known.
        ago: seconds since it ended.
        worker: the worker that the runs worked for; empty for rebalances.
    """

    times: int
    why: str = ""
    kind: str = ""
    ago: float = 0.0
    worker: str = ""


@dataclass(frozen=True, slots=True)
class DagsterSeen:
    """What Dagster reports about itself.

    Args:
        silent: why it does not answer.
        locations: code locations that are not loaded, with the reason.
        sensors: the sensors of the pipelines and groups.
        lost: code locations whose server does not answer, with the seconds for which that is known.
        unserved: pipelines that no code location serves.
        failed: pipelines whose last runs for a worker failed.
        rebalances: groups whose last rebalances failed.
        refused: pipeline file -> what of it Dagster does not serve, and why.
    """

    silent: str = ""
    locations: Mapping[str, str] = field(default_factory=dict)
    sensors: Sequence[SensorSeen] = ()
    lost: Mapping[str, float] = field(default_factory=dict)
    unserved: Sequence[str] = ()
    failed: Mapping[str, Sequence[FailedRuns]] = field(default_factory=dict)
    rebalances: Mapping[str, FailedRuns] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def judge_sensors(rows: Iterable[SensorRow], now: float) -> tuple[list[SensorSeen], dict[str, float]]:
    """Judge the sensors of one or more code locations.

    Args:
        rows: the sensors, in order of their code locations.
        now: the time on Dagster's clock. 0 in a sensor's own tick, which is the newest tick.

    Returns:
        the sensors, and the code locations whose server does not answer, with the seconds for which that is known.
    """
    sensors: list[SensorSeen] = []
    lost: dict[str, float] = {}
    for location, of in groupby(rows, key=lambda row: row.location):
        here = list(of)
        blamed = blame_sensors([row.ticks for row in here])
        sensors += (judge_sensor(replace(row, ticks=ticks), now) for row, ticks in zip(here, blamed, strict=True))
        if silence := measure_silence(blamed):
            lost[location] = silence
    return sensors, lost


def judge_sensor(row: SensorRow, now: float) -> SensorSeen:
    """Judge a sensor by its newest ticks, as `blame_sensors` returns them.

    An unfinished tick proves only that it began. A single slow tick proves nothing: it lasted as long as Dagster waits.
    """
    done = [tick for tick in row.ticks if tick.done]
    quiet = max(0.0, now - row.ticks[0].at) if row.ticks else 0.0
    failed = list(takewhile(lambda tick: tick.failed and not tick.lost, done))
    if not failed or [tick.kind for tick in failed] == [SLOW]:
        return SensorSeen(row.name, row.on, quiet=quiet, pipeline=row.pipeline)
    failing = max(failed[0].end - failed[-1].at, 0.001)
    return SensorSeen(row.name, row.on, failing, failed[0].why, quiet, row.pipeline, failed[0].kind)


def blame_sensors(ticks: Sequence[Sequence[Tick]]) -> list[list[Tick]]:
    """Return the same ticks of all sensors of a code server, with lost ticks attributed.

    If another sensor was answered in the second half of a lost tick, the server runs, and the tick takes longer than
    Dagster waits: it is attributed to its own sensor.
    """
    answers = [tick.end for of in ticks for tick in of if tick.done and not tick.lost]

    def attribute(tick: Tick) -> Tick:
        slow = tick.lost and any((tick.at + tick.end) / 2 < answer < tick.end for answer in answers)
        return replace(tick, why=TOO_SLOW, kind=SLOW) if slow else tick

    return [[attribute(tick) for tick in of] for of in ticks]


def measure_silence(ticks: Sequence[Sequence[Tick]]) -> float:
    """Return the seconds for which a code server is known to have answered none of its sensors; 0 if it answers.

    Args:
        ticks: the ticks of its sensors, as `blame_sensors` returns them.
    """
    done = [tick for of in ticks for tick in of if tick.done and tick.kind != SLOW]
    answered = max((tick.end for tick in done if not tick.lost), default=0.0)
    lost = [tick for tick in done if tick.lost and tick.end > answered]
    if not lost:
        return 0.0
    since = max(answered, min(tick.at for tick in lost))
    return max(max(tick.end for tick in lost) - since, 0.001)


def judge_runs(
    rows: Iterable[RunRow], tag: str, explain: Callable[[str], tuple[str, str]], now: float
) -> list[FailedRuns]:
    """Return the runs of a job that failed in a row, up to the newest run, for each worker.

    The success of one worker's run is no sign that another worker can work.

    Args:
        rows: the runs that ended, newest first.
        tag: `WORKER_TAG` or `REBALANCE_TAG`: the runs that have it count. Rebalances work for no worker.
        explain: returns the reason of a run's failure, and the class of its error.
        now: the time on Dagster's clock.
    """
    failures: dict[str, list[RunRow]] = {}
    succeeded: set[str] = set()
    for row in rows:
        if tag in row.tags and (worker := row.tags[tag] if tag == WORKER_TAG else "") not in succeeded:
            if row.failed:
                failures.setdefault(worker, []).append(row)
            else:
                succeeded.add(worker)
    found = []
    for worker, failed in failures.items():
        why, kind = explain(failed[0].id)
        ago = max(0.0, now - failed[0].ended)
        found.append(FailedRuns(len(failed), why or f"see run {failed[0].id}", kind, ago, worker))
    return found
