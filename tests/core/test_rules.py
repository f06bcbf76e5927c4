"""The alert rules are made from the table of causes: one alert for each cause, with a section of the page of troubles."""

import re
from math import isfinite
from pathlib import Path

import pytest
import yaml

from rota.face.causes import CAUSES
from rota.face.metrics import KINDS, METRICS
from rota.face.rules import RUNBOOK, list_causes, make_rules, name_anchor
from tests.core.seen_group import NEEDS, observe_over
from tests.docs.pages import list_anchors

ROOT = Path(__file__).parents[2]
OWN = {"RotaExportDown", "RotaExportAbsent"}
RULES = yaml.safe_load(make_rules())["groups"][0]["rules"]
OF_CAUSES = {rule["labels"]["cause"]: rule for rule in RULES if rule["alert"] not in OWN}


def test_each_cause_has_its_section() -> None:
    anchors = list_anchors(ROOT / RUNBOOK)
    assert not [cause for _, cause in KINDS if name_anchor(cause) not in anchors]
    listed = re.findall(r"^### `(.+)`$", (ROOT / RUNBOOK).read_text(), re.M)
    assert sorted(listed) == sorted({*(cause for _, cause in KINDS), "rota export"}), "and no other has one"


def test_each_cause_that_may_need_an_operator_has_one_alert() -> None:
    may = {cause.cause or row for row, cause in CAUSES.items() if isfinite(cause.patience)}
    assert OF_CAUSES.keys() == may == list_causes().keys()
    assert {cause for _, cause in KINDS} - may == {"failed", "growing"}, "these are retried automatically"
    assert len(RULES) == len(may) + len(OWN) == len({rule["alert"] for rule in RULES})


@pytest.mark.parametrize("name", NEEDS)
def test_what_needs_an_operator_in_any_situation_has_an_alert(name: str) -> None:
    seen, patience, _, _ = NEEDS[name]
    assert {need.cause for need in observe_over(seen, patience) if need.person} <= OF_CAUSES.keys()


@pytest.mark.parametrize("cause", OF_CAUSES)
def test_an_alert_fires_with_the_need_and_leads_to_its_section(cause: str) -> None:
    rule = OF_CAUSES[cause]
    assert rule["expr"] == f'sum by (group, kind) (rota_needs{{cause="{cause}", person="true"}}) > 0'
    assert "for" not in rule, "the need has had its patience"
    notes = rule["annotations"]
    anchor = notes["runbook_url"].removeprefix(f"{RUNBOOK}#")
    assert anchor in list_anchors(ROOT / RUNBOOK)
    text = notes["description"]
    assert "rota status --group {{ $labels.group }}" in text
    assert "{" not in re.sub(r"{{ \$(labels\.\w+|value) }}", "", f"{text}{notes['summary']}"), (
        "nothing is left to fill in"
    )
    steps = {re.split(r"[{`]", row.step)[0] for row in list_causes()[cause] if row.step}
    assert all(step in text for step in steps), "with the next step of each row"
    patience = max(row.patience for row in list_causes()[cause])
    assert rule.get("keep_firing_for") == (f"{patience:.0f}s" if patience else None)


def test_the_rules_name_metrics_that_exist() -> None:
    named = {name for rule in RULES for name in re.findall(r"\brota_\w+", rule["expr"])}
    assert named <= METRICS.keys()


def test_the_page_may_be_anywhere() -> None:
    made = yaml.safe_load(make_rules('https://x.example.com/"a"'))
    urls = {rule["annotations"]["runbook_url"].partition("#")[0] for rule in made["groups"][0]["rules"]}
    assert urls == {'https://x.example.com/"a"'}
