"""Reports the owner of a partition that moved, also if nothing landed in the partition since.

A run materializes `ownership` with each partition's first batch under a new token. A partition without new records has no
batch, so its former owner would stay on the page. Invariants:
1. A claim is reported once, and only if the page has another token of that partition. A run reports most claims earlier.
2. An observation compares at most `MAX_CLAIMS` claims and reports at most `MAX_EVENTS`, the oldest first. The next one
   continues after those: a sensor's tick is short, and Dagster stores some hundred events a second. Tokens grow with each
   claim, so the newest compared token is the cursor.
3. The materialization has the data version of the one before, because the data of the partition did not change. So no
   downstream asset becomes unsynced.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import dagster as dg

from rota.dagster.assets import metadata, page_keys, provenance
from rota.dagster.assets.names import Names
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.coordination.views import OwnView

MAX_CLAIMS, MAX_EVENTS = 500, 100  # claims that one observation compares with the page, and claims that it reports


def show_claims(
    instance: dg.DagsterInstance, tree: "GroupState", pipeline: Pipeline, names: Names, upto: int
) -> tuple[list[dg.AssetMaterialization], int]:
    """Find the claims that are not on the page.

    Args:
        upto: the newest token of earlier observations; 0 before the first.

    Returns:
        the materializations of `ownership` that report them, and the newest compared token.
    """
    record = tree.partitions().get(pipeline.name)
    ids = tuple(map(pipeline.partition, record.keys if record else ()))
    owned = {p: own for p, own in tree.owned(ids).items() if own.incarnation and own.token > upto}
    found: list[dg.AssetMaterialization] = []
    epoch = tree.head().record.epoch
    seen = provenance.read_lineage_tags(instance, names.assignment(pipeline.group)) if owned else {}
    for partition in sorted(owned, key=lambda p: owned[p].token)[:MAX_CLAIMS]:
        if len(found) == MAX_EVENTS:
            break
        upto = owned[partition].token
        found += _show(instance, names.ownership(pipeline.name), partition, owned[partition], epoch, seen)
    return found, upto


def _show(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    partition: str,
    own: "OwnView",
    epoch: int,
    seen: Mapping[str, str],
) -> Iterator[dg.AssetMaterialization]:
    """Yield the materialization of one claim, unless the page has it, or has no materialization of the partition."""
    filters = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[partition])
    for record in instance.fetch_materializations(filters, limit=1).records:
        last = record.asset_materialization
        shown = last.metadata.get(page_keys.TOKEN) if last else None
        if last is None or own.incarnation is None or getattr(shown, "value", None) == own.token:
            continue
        version = (last.tags or {}).get("dagster/data_version", "")
        yield dg.AssetMaterialization(
            asset,
            partition=partition,
            description="The partition moved, and nothing was consumed since",
            metadata=metadata.describe_owner(own.incarnation, own.token, epoch),
            tags={**seen, **({"dagster/data_version": version} if version else {})},
        )
