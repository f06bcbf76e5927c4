"""The metrics of a group for Prometheus: a pure function of one observation.

Laws:
1. `rota_needs` counts what `rota.face.needs` found. No metric has a threshold of its own.
2. What is unknown has no sample: the lag of a source that does not answer is not 0. What may occur and does not is 0.
3. Up to `MAX_SERIES` partitions, each has series of its own. The series of pipelines exist at any number.
4. docs/protocol.md lists each metric with its labels.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from rota.coordination.levels import find_levels
from rota.face.causes import CAUSES
from rota.face.events import MOVES, Buckets, Events, measure_ages
from rota.face.need import Need
from rota.face.seen import Seen
from rota.face.states import PARTITION_STATES, WORKER_STATES, list_partition_states, list_worker_states
from rota.ids import pipeline_of
from rota.ledger.totals import Totals

MAX_SERIES = 1_000  # partitions of a group up to which each has series of its own
LAGS = (0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7)  # bounds of offsets
AGES = (0.0, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0)  # bounds in s
KINDS = sorted(  # (kind, cause) of each need that may occur
    {(row.kind, row.cause or name) for name, row in CAUSES.items()} | {("dagster", "off"), ("dagster", "fails")}
)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the metrics of one observation are made from.

    Args:
        seen: the observation.
        needs: what `find_needs` found in it.
        events: what happened since the first observation.
        totals: pipeline -> the totals of its table, of the tables that were read.
    """

    seen: Seen
    needs: Sequence[Need]
    events: Events
    totals: Mapping[str, Totals] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Description:
    """A metric: its type, its labels after `group`, and its help."""

    kind: type[Metric]
    labels: tuple[str, ...]
    help: str


PARTITION, PIPELINE = ("pipeline", "partition"), ("pipeline",)
OF_EXPORTER = {
    "rota_export_up": Description(GaugeMetricFamily, (), "1 if the last observation of the group succeeded, else 0"),
    "rota_export_last_success_timestamp_seconds": Description(
        GaugeMetricFamily, (), "When the last observation that succeeded ended, in seconds since 1970; 0: none did"
    ),
    "rota_export_observation_seconds": Description(GaugeMetricFamily, (), "Seconds that it took"),
    "rota_build_info": Description(GaugeMetricFamily, ("version", "level"), "The build of the exporter; always 1"),
}
OF_GROUP = {
    "rota_needs": Description(
        GaugeMetricFamily,
        ("kind", "cause", "person"),
        "Faults. person: whether an operator is needed now, or the fault is expected to heal",
    ),
    "rota_workers": Description(GaugeMetricFamily, ("state",), "Live workers"),
    "rota_partitions": Description(GaugeMetricFamily, ("pipeline", "state"), "Partitions of the group"),
    "rota_epoch": Description(GaugeMetricFamily, (), "The epoch in force"),
    "rota_moves_total": Description(
        CounterMetricFamily, ("kind",), "Partitions that epochs assigned since the exporter began"
    ),
    "rota_handover_seconds": Description(
        HistogramMetricFamily, (), "Seconds from an epoch to the claim of a partition that it moved"
    ),
    "rota_writes_refused_total": Description(
        CounterMetricFamily, PIPELINE, "Writes that a table refused for an older token, since the exporter began"
    ),
    "rota_rows_total": Description(CounterMetricFamily, PIPELINE, "Rows in all commits of batches in the table's log"),
    "rota_commits_total": Description(CounterMetricFamily, PIPELINE, "Commits of batches in the table's log"),
    "rota_quarantined_rows_total": Description(
        CounterMetricFamily, PIPELINE, "Bad records in all commits of batches in the table's log"
    ),
    "rota_lag_offsets": Description(GaugeMetricFamily, PARTITION, "Offsets that the table does not have yet"),
    "rota_freshness_seconds": Description(
        GaugeMetricFamily, PARTITION, "Seconds that the oldest record is known to wait for the table; 0 without lag"
    ),
    "rota_pipeline_lag_offsets": Description(GaugeMetricFamily, PIPELINE, "The sum over the partitions"),
    "rota_pipeline_lag_offsets_max": Description(GaugeMetricFamily, PIPELINE, "The greatest of the partitions"),
    "rota_pipeline_freshness_seconds_max": Description(GaugeMetricFamily, PIPELINE, "The greatest of the partitions"),
    "rota_partitions_by_lag_offsets": Description(
        GaugeHistogramMetricFamily, PIPELINE, "Partitions by their lag in offsets"
    ),
    "rota_partitions_by_freshness_seconds": Description(
        GaugeHistogramMetricFamily, PIPELINE, "Partitions by the seconds that their oldest record is known to wait"
    ),
}


METRICS = OF_EXPORTER | OF_GROUP


class Families:
    """Metrics of one group, to which samples are added."""

    def __init__(self, group: str, metrics: Mapping[str, Description]) -> None:
        self._group = group
        self._made = {
            name: one.kind(name, one.help, labels=["group", *one.labels])  # type: ignore[call-arg]
            for name, one in metrics.items()
        }

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._made.values())

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add a sample of a gauge or a counter."""
        self._made[name].add_metric([self._group, *labels], value)  # type: ignore[attr-defined]

    def add_histogram(self, name: str, values: Buckets, *labels: str) -> None:
        """Add the samples of a histogram."""
        bounds = [*map(str, values.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(values.counts), strict=True))
        self._made[name].add_metric([self._group, *labels], buckets, values.total)  # type: ignore[attr-defined]


def make_own_metrics(group: str, up: bool, last: float, seconds: float) -> Iterable[Metric]:
    """Return the metrics of the exporter itself.

    Args:
        up: the last observation succeeded.
        last: when the last one that succeeded ended.
        seconds: how long that took.
    """
    families, build = Families(group, OF_EXPORTER), find_levels()
    families.add("rota_export_up", up)
    families.add("rota_export_last_success_timestamp_seconds", last)
    families.add("rota_export_observation_seconds", seconds)
    families.add("rota_build_info", 1, build.build, str(build.level))
    return families


def make_metrics(measured: Measured) -> Iterable[Metric]:
    """Return the metrics of an observation."""
    seen, families = measured.seen, Families(measured.seen.group, OF_GROUP)
    needs = Counter((need.kind, need.cause, need.person) for need in measured.needs)
    for kind, cause, person in sorted({*needs, *((*one, person) for one in KINDS for person in (True, False))}):
        families.add("rota_needs", needs[kind, cause, person], kind, cause, str(person).lower())
    workers = Counter(list_worker_states(seen).values())
    for state in WORKER_STATES:
        families.add("rota_workers", workers[state], state)
    families.add("rota_epoch", seen.facts.epoch)
    _add_events(families, measured)
    for pipeline, totals in measured.totals.items():
        families.add("rota_rows_total", totals.rows, pipeline)
        families.add("rota_commits_total", totals.commits, pipeline)
        families.add("rota_quarantined_rows_total", totals.quarantined, pipeline)
    _add_lags(families, measured)
    return families


def list_pipelines(seen: Seen) -> list[str]:
    """Return the pipelines of the group, those without partitions too."""
    return sorted({one.name for one in seen.pipelines}.union(map(pipeline_of, seen.facts.partitions)))


def _add_events(families: Families, measured: Measured) -> None:
    seen, events = measured.seen, measured.events
    states = Counter((pipeline_of(p), state) for p, state in list_partition_states(seen).items())
    for pipeline in list_pipelines(seen):
        families.add("rota_writes_refused_total", events.refused.get(pipeline, 0), pipeline)
        for state in PARTITION_STATES:
            families.add("rota_partitions", states[pipeline, state], pipeline, state)
    for kind in MOVES:
        families.add("rota_moves_total", events.moves.get(kind, 0), kind)
    families.add_histogram("rota_handover_seconds", events.handovers)


def _add_lags(families: Families, measured: Measured) -> None:
    seen = measured.seen
    ages = measure_ages(seen, measured.events.arrivals)
    few = len(seen.facts.partitions) <= MAX_SERIES
    for one in seen.pipelines:
        if one.fault:  # then its lags are unknown
            continue
        lags = {p: max(0, end - offset) for p, (offset, end) in one.ends.items()}  # a restored table is ahead of it
        for p, lag in lags.items() if few else ():
            families.add("rota_lag_offsets", lag, one.name, p)
            families.add("rota_freshness_seconds", ages[p], one.name, p)
        waits = [ages[p] for p in lags]
        families.add("rota_pipeline_lag_offsets", sum(lags.values()), one.name)
        families.add("rota_pipeline_lag_offsets_max", max(lags.values(), default=0), one.name)
        families.add("rota_pipeline_freshness_seconds_max", max(waits, default=0.0), one.name)
        families.add_histogram("rota_partitions_by_lag_offsets", Buckets.of(LAGS, lags.values()), one.name)
        families.add_histogram("rota_partitions_by_freshness_seconds", Buckets.of(AGES, waits), one.name)
