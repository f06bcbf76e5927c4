"""The metrics are a pure function of an observation: frozen observations, with any names and numbers of partitions."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeHistogramMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.parser import text_string_to_metric_families

from rota.coordination.views import OwnView
from rota.face.events import follow_events
from rota.face.metrics import MAX_SERIES, METRICS, OF_EXPORTER, Measured, make_metrics, make_own_metrics
from rota.face.need import Need
from rota.face.needs import find_needs
from rota.face.seen import PipelineSeen, Seen
from rota.face.states import PARTITION_STATES, WORKER_STATES, list_partition_states, list_worker_states
from rota.ledger.totals import Totals
from rota.run.eligibility import Facts
from tests.core.seen_group import FAILED, FREE, GONE, NEEDS, RUN, WELL, P, facts, observe_over, pipeline

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"
OF_KIND = {CounterMetricFamily: "counter", HistogramMetricFamily: "histogram"}
OF_KIND[GaugeHistogramMetricFamily] = "gauge histogram"


class Fixed:
    """A collector of metrics that are there."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self.metrics


def measure(seen: Seen, needs: Sequence[Need] | None = None, **totals: Totals) -> Measured:
    found = find_needs(seen)[0] if needs is None else needs
    return Measured(seen, found, follow_events(seen, (), (), None), totals)


def register(measured: Measured) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Fixed([*make_own_metrics(measured.seen.group, True, 5.0, 0.1), *make_metrics(measured)]))
    return registry


def read(measured: Measured) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Each sample as Prometheus reads it: name, labels without the group -> value."""
    text = generate_latest(register(measured)).decode()
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            assert one.labels["group"] == measured.seen.group
            key = one.name, frozenset((name, value) for name, value in one.labels.items() if name != "group")
            assert key not in found, "a series is there twice"
            found[key] = one.value
    return found


def at(found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def names(found: dict[tuple[str, frozenset[tuple[str, str]]], float]) -> Counter[str]:
    return Counter(name for name, _ in found)


def test_the_protocol_lists_each_metric_with_its_type_and_labels() -> None:
    section = PROTOCOL.read_text().split("\n## Metrics\n")[1].split("| metric of a worker |")[0]
    listed = {}
    for row in (line for line in section.splitlines() if line.startswith("| `")):
        name, kind, labels, _ = (cell.strip() for cell in row.strip("|").split("|", 3))
        listed[name.strip("`")] = kind, tuple(re.findall(r"`(\w+)`", labels))
    assert listed == {name: (OF_KIND.get(one.kind, "gauge"), one.labels) for name, one in METRICS.items()}
    for state in (*WORKER_STATES, *PARTITION_STATES):
        assert re.search(rf"\b{state}\b", section), state


@pytest.mark.parametrize("name", NEEDS)
def test_the_needs_are_those_of_the_one_function(name: str) -> None:
    """Those that need an operator, and those that may heal: nothing else decides."""
    seen, patience, cause, _ = NEEDS[name]
    for seconds in (0.0, patience):
        needs = observe_over(seen, seconds / 2, seconds)
        counted = Counter((need.kind, need.cause, str(need.person).lower()) for need in needs)
        found = read(measure(seen, needs))
        shown = {
            (labels["kind"], labels["cause"], labels["person"]): value
            for (metric, pairs), value in found.items()
            if metric == "rota_needs" and (labels := dict(pairs))
        }
        assert {key: value for key, value in shown.items() if value} == counted
        assert {kind for kind, *_ in counted} <= {kind for kind, *_ in shown}
    assert any(of == cause and person == "true" for _, of, person in counted)


def test_each_need_that_may_occur_has_samples_of_zero_before() -> None:
    quiet = read(measure(WELL, ()))
    for seen, patience, _, _ in NEEDS.values():
        for need in observe_over(seen, patience):
            for person in ("true", "false"):
                assert at(quiet, "rota_needs", kind=need.kind, cause=need.cause, person=person) == 0.0


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
ODD = st.sampled_from(['"', "\\", "\n", '\\"\n', "é", "🛫", "a b", "{}", "\u2028", "\r", "\t", "\0", "\\n"])


@given(st.sets(st.one_of(TEXTS, ODD), min_size=1, max_size=5), st.one_of(TEXTS, ODD))
def test_any_name_comes_back_as_it_is(keys: set[str], group: str) -> None:
    """Ids have a grammar; nothing here relies on it. Both formats of Prometheus escape them."""
    ids = tuple(sorted(f"p:{key}" for key in keys))
    ends = {p: (number, 2 * number) for number, p in enumerate(ids)}
    seen = replace(WELL, group=group, facts=Facts(partitions=ids, now=9.0), pipelines=(PipelineSeen("p", ends),))
    found = read(measure(seen))
    for p, (offset, end) in ends.items():
        assert at(found, "rota_lag_offsets", pipeline="p", partition=p) == end - offset
    text = exposition.generate_latest(register(measure(seen))).decode()
    again = {one.labels["partition"] for f in parser.text_string_to_metric_families(text) for one in f.samples
             if one.name == "rota_lag_offsets"}  # fmt: skip
    assert again == set(ids)


@pytest.mark.parametrize("count", [0, 1, MAX_SERIES, MAX_SERIES + 1])
def test_partitions_have_series_of_their_own_up_to_a_number(count: int) -> None:
    ids = tuple(f"p:{number}" for number in range(count))
    ends = {p: (0, number) for number, p in enumerate(ids)}
    seen = replace(WELL, facts=Facts(partitions=ids, now=9.0), pipelines=(PipelineSeen("p", ends),))
    found = read(measure(seen))
    own = 0 if count > MAX_SERIES else count
    assert names(found)["rota_lag_offsets"] == names(found)["rota_freshness_seconds"] == own
    assert at(found, "rota_pipeline_lag_offsets", pipeline="p") == sum(range(count))
    assert at(found, "rota_pipeline_lag_offsets_max", pipeline="p") == max(0, count - 1)
    assert at(found, "rota_partitions_by_lag_offsets_bucket", pipeline="p", le="+Inf") == count
    assert at(found, "rota_partitions_by_lag_offsets_bucket", pipeline="p", le="10.0") == min(count, 11)
    assert at(found, "rota_partitions", pipeline="p", state="unowned") == (count or None) or not count
    assert sum(value for (name, _), value in found.items() if name == "rota_partitions") == count


def test_the_number_of_series_does_not_grow_beyond_that_number() -> None:
    def count(partitions: int) -> int:
        ids = tuple(f"p:{number}" for number in range(partitions))
        seen = replace(WELL, facts=Facts(partitions=ids), pipelines=(PipelineSeen("p", dict.fromkeys(ids, (0, 1))),))
        return len(read(measure(seen)))

    assert count(MAX_SERIES + 1) == count(3 * MAX_SERIES) < count(MAX_SERIES)


def test_what_is_unknown_has_no_sample() -> None:
    found = read(measure(pipeline(fault="no answer", ends={})))
    assert not [name for name in names(found) if "lag" in name or "freshness" in name]
    assert at(found, "rota_rows_total", pipeline="p") is None, "the table was not read"
    found = read(measure(WELL, p=Totals(2, 30, 4)))
    assert [at(found, f"rota_{name}_total", pipeline="p") for name in ("commits", "rows", "quarantined_rows")] == [
        2,
        30,
        4,
    ]
    assert at(found, "rota_pipeline_lag_offsets", pipeline="p") == 0.0


def test_a_restored_table_has_no_negative_lag() -> None:
    found = read(measure(pipeline(ends={"p:a": (9, 5), "p:b": (6, 8)})))
    assert at(found, "rota_lag_offsets", pipeline="p", partition="p:a") == 0
    assert at(found, "rota_pipeline_lag_offsets", pipeline="p") == 2


def test_each_partition_has_one_state_and_each_worker_one() -> None:
    moving = {"targets": {"w1": frozenset({"p:a", "p:b"}), "w2": frozenset()}}
    states = {
        "owned": list_partition_states(WELL),
        "running": list_partition_states(facts(runs=(RUN,))),
        "moving": list_partition_states(facts(**moving)),
        "unowned": list_partition_states(facts(**GONE)) | list_partition_states(facts(**FREE)),
        "parked": list_partition_states(facts(parked={"p:b": FAILED}, runs=(RUN,))),
        "unreadable": list_partition_states(facts(unreadable={"p:b": "x"}, parked={"p:b": FAILED})),
    }
    assert set(states) == set(PARTITION_STATES)
    assert all(state in found.values() for state, found in states.items()), states
    assert list_worker_states(WELL) == {"w1": "active", "w2": "active"}
    found = read(measure(WELL))
    assert at(found, "rota_workers", state="active") == 2
    assert sum(value for (name, _), value in found.items() if name == "rota_workers") == 2
    assert at(found, "rota_partitions", pipeline="p", state="owned") == 2


def test_an_exporter_that_cannot_observe_has_its_own_metrics_only() -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Fixed([*make_own_metrics("g", False, 0.0, 0.0)]))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    assert {one.name for one in families} == set(OF_EXPORTER)
    assert next(one for one in families if one.name == "rota_export_up").samples[0].value == 0.0


def test_pipelines_without_partitions_and_partitions_without_a_pipeline_are_counted() -> None:
    seen = replace(WELL, pipelines=(P, PipelineSeen("empty")), facts=Facts(partitions=("gone:x",), now=9.0))
    found = read(measure(seen))
    assert at(found, "rota_partitions", pipeline="empty", state="owned") == 0
    assert at(found, "rota_partitions", pipeline="gone", state="unowned") == 1
    owned = replace(seen, facts=replace(seen.facts, owns={"gone:x": OwnView(None, 1, 1)}))
    assert list_partition_states(owned) == {"gone:x": "unowned"}
