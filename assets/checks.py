"""The asset checks of groups and pipelines, and the result of each.

Laws:
1. A check of a pipeline reports the needs that `rota.face.needs` found. This module maps a need to its check. A check is
   of the whole asset, never of the keys of one run only.
2. A need of an operator fails as an error. A need that heals by itself fails as a warning.
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
MOST = 100  # partitions that a result names; `rota status` shows all
GROUP = "group_works"  # takes each need that no other check takes
TIMES = ("since", "due")  # of a need: a check does not report them, as it would be another result at each observation
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
    """The checks of a pipeline's three assets."""
    ownership, records, checkpoints = names.consumed(pipeline.name)
    said = {
        "no_stale_epoch": (ownership, "In the table's log no older token follows a newer one."),
        "all_owned": (ownership, "No partition is without a live owner for long."),
        GROUP: (ownership, "The Sparks of the group's workers answer, and its records can be read."),
        "no_gap": (records, "In the table's log each batch starts where the last one ended."),
        "none_parked": (records, "No partition of the pipeline is parked."),
        "none_rewritten": (records, "None of the newest files changed after it was consumed."),
        "none_left_out": (records, "Everything in the source that is not hidden is read."),
        "source_and_table_answer": (records, "The source and the table can be read, and are this group's."),
        "offsets_advance": (checkpoints, "No checkpoint is ahead of its table, and no table of its ZooKeeper."),
        "keeps_up": (checkpoints, "Each partition with lag moves on, and no lag grows for long."),
    }
    return [dg.AssetCheckSpec(name, asset=asset, description=text) for name, (asset, text) in said.items()]


def list_group_checks(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """The checks of a group's assignment."""
    return [
        dg.AssetCheckSpec("one_owner_each", asset=key, description="Each partition is in one worker's target at most."),
        dg.AssetCheckSpec("balance_within_bound", asset=key, description="The imbalance is the least possible."),
    ]


def quote_needs(needs: Iterable["Need"]) -> dict[str, dg.MetadataValue[Any]]:
    """The metadata from which an alert is made: the needs of a check that fails."""
    quoted = [{name: value for name, value in need.describe().items() if name not in TIMES} for need in needs]
    return {NEEDS: dg.MetadataValue.json(quoted[:MOST])} if quoted else {}


def check_files(key: dg.AssetKey, refused: Mapping[str, str]) -> dg.AssetCheckEvaluation:
    """The check that every file in the folder of pipelines is served; `refused` is file -> why it is not."""
    from rota.face.need import Need

    needs = [Need("file", file, "refused", why) for file, why in sorted(refused.items())]
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=SERVED,
        passed=not refused,
        description=as_code("; ".join(refused.values())) or None,
        metadata={**({"refused": dg.MetadataValue.json(dict(refused))} if refused else {}), **quote_needs(needs)},
    )


def read_said(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> tuple[dg.AssetCheckEvaluation, float] | None:
    """The newest evaluation of the check, and when it was stored. None where a run has planned one and has not evaluated it,
    or never will because it was cancelled: the data of the newest record is then the plan."""
    record = instance.get_latest_asset_check_evaluation_record(key)
    said = record.evaluation if record else None
    return (said, record.create_timestamp) if record and isinstance(said, dg.AssetCheckEvaluation) else None


def evaluate_needs(
    needs: Iterable["Need"], pipeline: Pipeline, names: Names, looked_at: int
) -> list[dg.AssetCheckEvaluation]:
    """Return the result of each of the pipeline's checks, in the order of `list_checks`.

    A need that may still heal fails none. A need that never needs an operator fails as a warning.
    """
    of: dict[str, list[Need]] = {}
    checks = {cause: check for check, causes in CAUSES.items() for cause in causes}
    for need in needs:
        if need.person or need.due == float("inf"):
            of.setdefault(checks.get(need.cause, GROUP), []).append(need)
    return [_evaluate(spec, of.get(spec.name, []), looked_at) for spec in list_checks(pipeline, names)]


def evaluate_silence(pipeline: Pipeline, names: Names, why: str, kind: str) -> dg.AssetCheckEvaluation:
    """The result of the group's check where the group cannot be looked at; `kind` is that of the error."""
    from rota.face.need import Need
    from rota.face.needs import SHARED

    spec = next(spec for spec in list_checks(pipeline, names) if spec.name == GROUP)
    which = kind if kind in SHARED else why
    return _evaluate(spec, [Need("group", pipeline.group, "fails", why, which=which)], 0)


def _evaluate(spec: dg.AssetCheckSpec, needs: Sequence["Need"], looked_at: int) -> dg.AssetCheckEvaluation:
    wrong: dict[str, str] = {}
    for need in needs:
        wrong[need.name] = "; ".join(filter(None, (wrong.get(need.name), need.sentence)))
    persons = [need for need in needs if need.person]
    severity = ERROR if persons or not needs else WARN
    return evaluate(spec, wrong, looked_at, severity, quote_needs(persons))


def find_imbalance(done: "Rebalanced") -> dict[str, str]:
    """Why the imbalance is above the lower bound. Empty if it is not."""
    measures = done.plan.measures
    after, bound = measures.imbalance_after, measures.lower_bound
    if after is None or bound is None or after <= bound + 1e-9:
        return {}
    return {"imbalance": f"{after:.4f} where {bound:.4f} is possible. {measures.reason}".strip()}


def check_epoch(group_key: dg.AssetKey, done: "Rebalanced") -> list[dg.AssetCheckResult]:
    """The results of an assignment's checks. Imbalance is a warning only, because a policy may hold moves back."""
    one, even = list_group_checks(group_key)
    doubled = {partition: " and ".join(workers) for partition, workers in done.doubles.items()}
    held = len(done.plan.assignment.snapshot.partition_ids)
    said = (evaluate(one, doubled, held), evaluate(even, find_imbalance(done), held, WARN))
    return [make_result(evaluation) for evaluation in said]


def evaluate(
    spec: dg.AssetCheckSpec,
    wrong: Mapping[str, str],
    looked_at: int,
    severity: dg.AssetCheckSeverity = ERROR,
    more: Mapping[str, dg.MetadataValue[Any]] = MappingProxyType({}),
) -> dg.AssetCheckEvaluation:
    """An evaluation that passes if nothing is wrong, and names what is wrong: `MOST` of it, by partition."""
    named = dict(sorted(wrong.items())[:MOST])
    first = next((f"{name}: {why}" for name, why in named.items()), None)
    return dg.AssetCheckEvaluation(
        asset_key=spec.asset_key,
        check_name=spec.name,
        passed=not wrong,
        severity=severity,
        description=as_code(f"{first}. And {len(wrong) - 1} more" if len(wrong) > 1 else first) if first else None,
        metadata={  # a text: of a number Dagster draws a plot
            "looked at": str(looked_at),
            **({"wrong": dg.MetadataValue.json(named)} if wrong else {}),
            **more,
        },
    )


def make_result(said: dg.AssetCheckEvaluation) -> dg.AssetCheckResult:
    """The evaluation as the result of a step."""
    return dg.AssetCheckResult(
        asset_key=said.asset_key,
        check_name=said.check_name,
        passed=said.passed,
        severity=said.severity,
        description=said.description,
        metadata=said.metadata,
    )
