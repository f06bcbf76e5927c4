"""Repeats evaluations of checks. The page counts an evaluation only if it is of the asset's newest materialization.

Invariant: a run that makes a materialization repeats the evaluations of its checks. Otherwise each check of a pipeline with
frequent small batches would be "Not Evaluated", also one that failed.
"""

from collections.abc import Iterable, Iterator
from functools import cache

import dagster as dg

from rota.dagster.assets.checks import read_evaluation
from rota.dagster.assets.provenance import aim


def find_unshown(
    instance: dg.DagsterInstance, evaluations: Iterable[dg.AssetCheckEvaluation]
) -> list[dg.AssetCheckEvaluation]:
    """Return the evaluations that the page does not show, for the newest materialization of their assets.

    The page shows another one, or none (a run has planned the check), or one that it does not count.
    """
    find_made = cache(lambda asset: _find_made(instance, asset))  # an asset has several checks
    found: list[dg.AssetCheckEvaluation] = []
    for one in evaluations:
        made = find_made(one.asset_key)
        last = read_evaluation(instance, one.asset_check_key)
        if last is None or not _is_same(last[0], one) or not _counts(last, made):
            found.append(aim(one, made))
    return found


def repeat(instance: dg.DagsterInstance, specs: Iterable[dg.AssetCheckSpec]) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the last evaluation of each check, for the newest materialization of its asset."""
    find_made = cache(lambda asset: _find_made(instance, asset))
    for spec in specs:
        if last := read_evaluation(instance, spec.key):
            yield aim(last[0], find_made(spec.asset_key))


def _find_made(instance: dg.DagsterInstance, asset: dg.AssetKey) -> dg.EventLogRecord | None:
    return next(iter(instance.fetch_materializations(asset, limit=1).records), None)


def _is_same(a: dg.AssetCheckEvaluation, b: dg.AssetCheckEvaluation) -> bool:
    return (a.passed, a.severity, dict(a.metadata)) == (b.passed, b.severity, dict(b.metadata))


def _counts(last: tuple[dg.AssetCheckEvaluation, float], made: dg.EventLogRecord | None) -> bool:
    """Return whether the page counts the last evaluation, given when it was stored, for this materialization."""
    evaluation, at = last
    if made is None:
        return True
    target = evaluation.target_materialization_data
    return target.storage_id == made.storage_id if target else made.timestamp < at
