"""The asset checks of groups and pipelines, and the result of each.

Laws:
1. A check of a pipeline reports the needs that `rota.face.needs` found. This module maps a need to its check. A check
   covers the whole asset, never only the partitions of one run.
2. A check fails as an error for a need of an operator, and as a warning for a need that heals by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import dagster as dg

from rota.dagster.assets.markdown import as_code
from rota.dagster.assets.names import Names
from rota.dagster.assets.page_keys import NEEDS
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.face.need import Need
    from rota.group.rebalance import Rebalanced


ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
SERVED = "every_file_served"  # of a group's membership
MAX_NAMED = 100  # partitions that a result names; `rota status` shows all
GROUP = "group_works"  # reports each need that no other check reports
TIMES = ("since", "due")  # fields of a need that a check leaves out: with them, each observation had another result
CAUSES = {  # check of a pipeline -> the causes of the needs that fail it
    "no_stale_epoch": ("stale",),
    "all_owned": ("workers", "unowned", "unplaceable", "handover"),
    "no_gap": ("gap",),
    "none_parked": ("parked", "failed"),
    "none_rewritten": ("rewritten",),
    "none_left_out": ("left out",),
    "source_and_table_answer": ("source", "table", "room", "new"),
    "offsets_advance": ("restored",),
    "keeps_up": ("idle", "withheld", "still", "growing", "runs", "off", "fails"),
}


def list_checks(pipeline: Pipeline, names: Names) -> list[dg.AssetCheckSpec]:
    """Return the checks of a pipeline's three assets."""
    ownership, records, checkpoints = names.consumed(pipeline.name)
    described = {
        "no_stale_epoch": (ownership, "In the table's log no older token follows a newer one."),
        "all_owned": (ownership, "No partition is without a live owner for long."),
        GROUP: (ownership, "The Sparks of the group's workers answer, and its records can be read."),
        "no_gap": (records, "In the table's log each batch starts where the last one ended."),
        "none_parked": (records, "No partition of the pipeline is parked."),
        "none_rewritten": (records, "None of the newest files changed after it was consumed."),
        "none_left_out": (records, "Everything in the source that is not hidden is read."),
        "source_and_table_answer": (records, "The source and the table can be read, and are this group's."),
        "offsets_advance": (checkpoints, "No checkpoint is ahead of its table, and no table is ahead of ZooKeeper."),
        "keeps_up": (checkpoints, "Each partition with lag is consumed, and no lag grows for long."),
    }
    return [dg.AssetCheckSpec(name, asset=asset, description=text) for name, (asset, text) in described.items()]


def list_group_checks(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return the checks of a group's assignment."""
    return [
        dg.AssetCheckSpec("one_owner_each", asset=key, description="Each partition is in one worker's target at most."),
        dg.AssetCheckSpec("balance_within_bound", asset=key, description="The imbalance is the least possible."),
    ]


def quote_needs(needs: Iterable["Need"]) -> dict[str, dg.MetadataValue[Any]]:
    """Return the needs of a failing check as metadata, which the alert sensor reads."""
    quoted = [{name: value for name, value in need.describe().items() if name not in TIMES} for need in needs]
    return {NEEDS: dg.MetadataValue.json(quoted[:MAX_NAMED])} if quoted else {}


def check_files(key: dg.AssetKey, refused: Mapping[str, str]) -> dg.AssetCheckEvaluation:
    """Return the result of the check that every pipeline file is served; `refused` is file -> why it is not."""
    from rota.face.need import Need

    needs = [Need("file", file, "refused", why) for file, why in sorted(refused.items())]
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=SERVED,
        passed=not refused,
        description=as_code("; ".join(refused.values())) or None,
        metadata={**({"refused": dg.MetadataValue.json(dict(refused))} if refused else {}), **quote_needs(needs)},
    )


def read_evaluation(
    instance: dg.DagsterInstance, key: dg.AssetCheckKey
) -> tuple[dg.AssetCheckEvaluation, float] | None:
    """Return the newest evaluation of the check, and when it was stored. None if the newest record is only a plan: a run has
    not evaluated the check yet, or was cancelled before."""
    record = instance.get_latest_asset_check_evaluation_record(key)
    found = record.evaluation if record else None
    return (found, record.create_timestamp) if record and isinstance(found, dg.AssetCheckEvaluation) else None


def evaluate_needs(
    needs: Iterable["Need"], pipeline: Pipeline, names: Names, checked: int
) -> list[dg.AssetCheckEvaluation]:
    """Return the result of each of the pipeline's checks, in the order of `list_checks`.

    No check fails for a need that may still heal. `checked` is the number of partitions that were checked.
    """
    of: dict[str, list[Need]] = {}
    checks = {cause: check for check, causes in CAUSES.items() for cause in causes}
    for need in needs:
        if need.person or need.due == float("inf"):
            of.setdefault(checks.get(need.cause, GROUP), []).append(need)
    return [_evaluate(spec, of.get(spec.name, []), checked) for spec in list_checks(pipeline, names)]


def evaluate_silence(pipeline: Pipeline, names: Names, why: str, kind: str) -> dg.AssetCheckEvaluation:
    """Return the result of the group's check if the group cannot be read; `kind` is the kind of the error."""
    from rota.face.need import Need
    from rota.face.needs import SHARED

    spec = next(spec for spec in list_checks(pipeline, names) if spec.name == GROUP)
    which = kind if kind in SHARED else why
    return _evaluate(spec, [Need("group", pipeline.group, "fails", why, which=which)], 0)


def _evaluate(spec: dg.AssetCheckSpec, needs: Sequence["Need"], checked: int) -> dg.AssetCheckEvaluation:
    wrong: dict[str, str] = {}
    for need in needs:
        wrong[need.name] = "; ".join(filter(None, (wrong.get(need.name), need.sentence)))
    persons = [need for need in needs if need.person]
    severity = ERROR if persons or not needs else WARN
    return evaluate(spec, wrong, checked, severity, quote_needs(persons))


def find_imbalance(done: "Rebalanced") -> dict[str, str]:
    """Return why the imbalance is above the lower bound; empty if it is not."""
    measures = done.plan.measures
    after, bound = measures.imbalance_after, measures.lower_bound
    if after is None or bound is None or after <= bound + 1e-9:
        return {}
    return {"imbalance": f"{after:.4f} where {bound:.4f} is possible. {measures.reason}".strip()}


def check_epoch(group_key: dg.AssetKey, done: "Rebalanced") -> list[dg.AssetCheckResult]:
    """Return the results of an assignment's checks. Imbalance is only a warning, because a policy may delay moves."""
    one, even = list_group_checks(group_key)
    doubled = {partition: " and ".join(workers) for partition, workers in done.doubles.items()}
    held = len(done.plan.assignment.snapshot.partition_ids)
    evaluations = (evaluate(one, doubled, held), evaluate(even, find_imbalance(done), held, WARN))
    return [make_result(evaluation) for evaluation in evaluations]


def evaluate(
    spec: dg.AssetCheckSpec,
    wrong: Mapping[str, str],
    checked: int,
    severity: dg.AssetCheckSeverity = ERROR,
    more: Mapping[str, dg.MetadataValue[Any]] = MappingProxyType({}),
) -> dg.AssetCheckEvaluation:
    """Return an evaluation that passes if `wrong` (partition -> reason) is empty, and names `MAX_NAMED` of it."""
    named = dict(sorted(wrong.items())[:MAX_NAMED])
    first = next((f"{name}: {why}" for name, why in named.items()), None)
    return dg.AssetCheckEvaluation(
        asset_key=spec.asset_key,
        check_name=spec.name,
        passed=not wrong,
        severity=severity,
        description=as_code(f"{first}. And {len(wrong) - 1} more" if len(wrong) > 1 else first) if first else None,
        metadata={  # a text, because Dagster plots a number
            "looked at": str(checked),
            **({"wrong": dg.MetadataValue.json(named)} if wrong else {}),
            **more,
        },
    )


def make_result(one: dg.AssetCheckEvaluation) -> dg.AssetCheckResult:
    """Return the evaluation as the result of a step."""
    return dg.AssetCheckResult(
        asset_key=one.asset_key,
        check_name=one.check_name,
        passed=one.passed,
        severity=one.severity,
        description=one.description,
        metadata=one.metadata,
    )
