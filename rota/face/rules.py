"""The alert rules for Prometheus, made from the table of causes.

Laws:
1. There is one alert for each cause that may need an operator. It fires for `rota_needs{person="true"}`, which `find_needs`
   decides, with the patience of the cause and all that extends it. So no rule has a threshold.
2. An exporter that is started again does not know how long a need has existed, and reports it as one that may heal. So an
   alert keeps firing for the patience of its cause.
"""

import json
import re
from collections.abc import Iterator
from math import isfinite

from rota.face.causes import CAUSES, Cause

RUNBOOK = "docs/troubleshooting.md"  # the page with a section for each cause
GROUP = "{{ $labels.group }}"
WORDS = {  # what a step of the table is filled in with, where a need has a name
    "group": GROUP,
    "option": f" --group {GROUP}",
    "partition": "PARTITION",
    "sensor": "`PIPELINE__backlog`",
    "taker": "the worker that takes it",
    "worker": "its owner",
    "more": "",
}
DOWN = 120  # seconds for which no observation succeeds, until the alert fires


def name_anchor(cause: str) -> str:
    """Return the anchor of the cause's section on the page of `RUNBOOK`."""
    return cause.replace(" ", "-")


def list_causes() -> dict[str, list[Cause]]:
    """Return each cause that may need an operator -> its rows of the table."""
    found: dict[str, list[Cause]] = {}
    for name, row in CAUSES.items():
        if isfinite(row.patience):
            found.setdefault(row.cause or name, []).append(row)
    return found


def make_rules(runbook: str = RUNBOOK) -> str:
    """Return the rules as YAML. `runbook` is the address of the page with a section for each cause."""
    return "".join(f"{line}\n" for line in _list_lines(runbook))


def _list_lines(runbook: str) -> Iterator[str]:
    yield "# Made by `rota export --rules`. Do not edit: the causes and their patience are rota's own."
    yield "groups:"
    yield "  - name: rota"
    yield "    rules:"
    for cause, rows in list_causes().items():
        patience = max(row.patience for row in rows)
        query = f'sum by (group, kind) (rota_needs{{cause="{cause}", person="true"}}) > 0'
        yield from _list_alert(
            f"Rota{_join_words(cause)}",
            query,
            f"keep_firing_for: {patience:.0f}s" if patience else "",
            {"severity": "page", "cause": cause},
            {
                "summary": f"{cause}: {{{{ $value }}}} of the kind {{{{ $labels.kind }}}} in group {GROUP}",
                "description": _describe_steps(rows),
                "runbook_url": f"{runbook}#{name_anchor(cause)}",
            },
        )
    for name, query, summary in (
        ("RotaExportDown", "rota_export_up == 0", f"rota export cannot observe group {GROUP}"),
        ("RotaExportAbsent", "absent(rota_export_up)", "Prometheus scrapes no rota export"),
    ):
        step = "See the log of `rota export`, then `rota check`. `rota status` shows the group meanwhile."
        about = {"summary": summary, "description": step, "runbook_url": f"{runbook}#rota-export"}
        yield from _list_alert(name, query, f"for: {DOWN}s", {"severity": "page"}, about)


def _list_alert(name: str, query: str, lasts: str, labels: dict[str, str], notes: dict[str, str]) -> Iterator[str]:
    yield f"      - alert: {name}"
    yield f"        expr: {json.dumps(query)}"
    if lasts:
        yield f"        {lasts}"
    for kind, values in (("labels", labels), ("annotations", notes)):
        yield f"        {kind}:"
        yield from (f"          {key}: {json.dumps(value)}" for key, value in values.items())


def _describe_steps(rows: list[Cause]) -> str:
    """Return the next steps of the rows, and the command that shows what has the fault."""
    steps = dict.fromkeys(row.step.format(**WORDS) for row in rows if row.step)
    shown = f"`rota status --group {GROUP}` shows each, with the reason and the next step."
    return f"Next step: {'; or '.join(steps)}. {shown}" if steps else shown


def _join_words(cause: str) -> str:
    return "".join(word.capitalize() for word in re.split(r"\W", cause))
