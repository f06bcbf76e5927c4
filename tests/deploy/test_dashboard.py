"""The dashboard is what its program makes, and names metrics, labels and values that exist."""

import json
import re
import runpy
from pathlib import Path

from prometheus_client.core import HistogramMetricFamily

from rota.face.events import HANDOVER_BOUNDS
from rota.face.metrics import METRICS
from rota.face.states import PARTITION_STATES, WORKER_STATES

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "grafana" / "rota.json"
PANELS = [one for one in json.loads(FILE.read_text())["panels"] if one["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
SERIES = {
    f"{name}{end}": (name, {"group", *one.labels, *({"le"} if end else ())})
    for name, one in METRICS.items()
    for end in (("_bucket",) if one.kind is HistogramMetricFamily else ("",))
}
VALUES = {
    "rota_workers": {"state": set(WORKER_STATES)},
    "rota_partitions": {"state": set(PARTITION_STATES)},
    "rota_needs": {"person": {"true", "false"}},
    "rota_handover_seconds": {"le": {*map(str, HANDOVER_BOUNDS), "[+]Inf"}},
}
SELECTOR = re.compile(r"\b(rota_\w+)\{([^}]*)\}")


def test_the_file_is_what_the_program_makes() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "dashboard.py"))["make_dashboard"]()
    assert FILE.read_text() == made, "edit docs/dashboard.py, and run it: python docs/dashboard.py"


def test_each_query_names_metrics_labels_and_values_of_the_exporter() -> None:
    for query in QUERIES:
        found = SELECTOR.findall(query)
        assert len(found) == query.count("rota_") == 1, query
        name, labels = SERIES[found[0][0]]
        grouped = {one for text in re.findall(r"by \(([^)]*)\)", query) for one in text.split(", ")}
        assert grouped <= labels, query
        matched = dict(re.findall(r'(\w+)=~?"([^"]*)"', found[0][1]))
        assert matched.keys() <= labels, query
        assert matched.pop("group") == "$group", query
        for label, values in matched.items():
            assert set(values.split("|")) <= VALUES[name][label], query


def test_each_panel_states_what_it_shows_also_without_an_answer() -> None:
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["noValue"], panel["title"]
        assert all(target["instant"] == (panel["type"] != "timeseries") for target in panel["targets"]), panel["title"]
