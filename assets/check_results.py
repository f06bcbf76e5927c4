"""Which evaluation of a check the page counts: only one of the asset's newest materialization.

Invariant: a run that makes a materialization repeats the evaluations of its checks. Else each check of a pipeline with a
trickle of files would be "Not Evaluated", also one that failed.
"""

from collections.abc import Iterable, Iterator
from functools import cache

import dagster as dg

from rota.dagster.assets.checks import read_said
from rota.dagster.assets.provenance import aim


def find_unshown(
    instance: dg.DagsterInstance, said: Iterable[dg.AssetCheckEvaluation]
) -> list[dg.AssetCheckEvaluation]:
    """The evaluations that the page does not show, each of the newest materialization of its asset: it shows another, or
    none (as while a run was to evaluate the check), or one that it does not count."""
    find_made = cache(lambda asset: _find_made(instance, asset))  # an asset has several checks
    found: list[dg.AssetCheckEvaluation] = []
    for one in said:
        made = find_made(one.asset_key)
        last = read_said(instance, one.asset_check_key)
        if last is None or not _is_same(last[0], one) or not _counts(last, made):
            found.append(aim(one, made))
    return found


def repeat(instance: dg.DagsterInstance, specs: Iterable[dg.AssetCheckSpec]) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the last evaluation of each check, for the newest materialization of its asset."""
    find_made = cache(lambda asset: _find_made(instance, asset))
    for spec in specs:
        if last := read_said(instance, spec.key):
            yield aim(last[0], find_made(spec.asset_key))


def _find_made(instance: dg.DagsterInstance, asset: dg.AssetKey) -> dg.EventLogRecord | None:
    return next(iter(instance.fetch_materializations(asset, limit=1).records), None)


def _is_same(shown: dg.AssetCheckEvaluation, said: dg.AssetCheckEvaluation) -> bool:
    return (shown.passed, shown.severity, dict(shown.metadata)) == (said.passed, said.severity, dict(said.metadata))


def _counts(last: tuple[dg.AssetCheckEvaluation, float], made: dg.EventLogRecord | None) -> bool:
    """Whether the page counts the evaluation, which was stored then."""
    said, at = last
    if made is None:
        return True
    target = said.target_materialization_data
    return target.storage_id == made.storage_id if target else made.timestamp < at
