"""`<group>/membership` and `<group>/assignment`: which workers are live, and which partitions each should own."""

from collections.abc import Iterator, Mapping
from contextlib import suppress

import dagster as dg

from rota.dagster.assets import checks, epoch_picture, metadata, page_keys
from rota.dagster.assets.failure import in_one_line
from rota.dagster.assets.liveness import prove_liveness
from rota.dagster.assets.markdown import as_code
from rota.dagster.assets.names import Names
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.errors import RotaError
from rota.ids import dagster_name
from rota.pipeline import Group, Pipeline

BACKFILL = "dagster/backfill"  # Dagster's tag of a run that a backfill launched


def make_membership(
    group: Group, pipelines: tuple[Pipeline, ...], refused: Mapping[str, str], names: Names
) -> dg.AssetSpec:
    """Return the external asset that the membership sensor materializes. Its description names the refused files."""
    lines = "".join(f"\n\n**Refused: `{file}`.** {as_code(why)}" for file, why in refused.items())
    served = ", ".join(pipeline.name for pipeline in pipelines) or "no pipeline"
    return dg.AssetSpec(
        names.membership(group.name),
        group_name=dagster_name("workers", group.name),
        kinds={"zookeeper"},
        owners=[f"team:{group.name}"],
        description=f"The live workers of group `{group.name}`, which serves {served}. "
        f"Materialized when a worker joins or leaves, and when overrides or partitions change.{lines}",
        metadata={
            "protocol": group.protocol,
            "assignor": group.assignor,
            "pipelines": served,
            **({"refused": dict(refused)} if refused else {}),
        },
    )


def make_files_check(group: Group, refused: Mapping[str, str], names: Names) -> dg.AssetChecksDefinition:
    """Return the check that fails while a file of the folder is refused. The membership sensor also reports it."""
    key = names.membership(group.name)

    @dg.asset_check(asset=key, name=checks.SERVED, description="Every file in the folder of pipelines is served.")
    def check() -> dg.AssetCheckResult:
        return checks.make_result(checks.check_files(key, refused))

    return check


def make_assignment(group: Group, pipelines: tuple[Pipeline, ...], names: Names) -> dg.AssetsDefinition:
    """Return the asset of the group's target. An epoch is a materialization; a rebalance without one is an observation.

    In a backfill, a rebalance without an epoch repeats the last materialization: else Dagster shows the asset as failed.
    """
    key = names.assignment(group.name)
    what = f"Which worker of group `{group.name}` should own which partition, by assignor `{group.assignor}`."
    if group.protocol != "assigned":
        what = (
            f"Which worker of group `{group.name}` owns which partition, recorded once owners stop changing: the workers "
            f"decide alone, by protocol `{group.protocol}`."
        )

    @dg.asset(
        key=key,
        deps=[names.membership(group.name)],
        group_name=dagster_name("workers", group.name),
        kinds={"zookeeper"},
        owners=[f"team:{group.name}"],
        code_version="1",
        output_required=False,
        check_specs=checks.list_group_checks(key),
        description=f"{what} Each materialization is an epoch and begins with what happened and why.",
    )
    def rebalance(context: dg.AssetExecutionContext, rota_zookeeper: ZooKeeperResource) -> Iterator[object]:
        from rota.group.rebalance import rebalance as verb
        from rota.run import work

        with in_one_line(), prove_liveness(context, rota_zookeeper, group.name) as tree:
            done = verb(tree, context.run.run_id)
            context.log.info(done.sentence)
            if done.published:
                context.instance.add_run_tags(context.run.run_id, names.epoch_tags(group.name, done.epoch))
            drawn: dict[str, object] = {}
            lags: dict[str, int] = {}
            sparks: dict[str, str | None] = {}
            with suppress(RotaError):  # the epoch is published, even if these cannot be read
                sparks = {one.worker: one.record.endpoint for one in tree.live() if one.record}
                if done.published:
                    drawn = epoch_picture.draw_picture(context.instance, tree, pipelines, names, done.epoch)
                    lags = work.read_group_lags(tree, pipelines)
            shown = metadata.describe_epoch(done, drawn, lags, sparks)
        if done.published:
            yield dg.MaterializeResult(asset_key=key, metadata=shown, data_version=dg.DataVersion(str(done.epoch)))
        elif BACKFILL in context.run.tags:
            last = context.instance.fetch_materializations(key, limit=1).records
            made = last[0].asset_materialization if last else None
            kept = {**(made.metadata if made else shown), page_keys.NOTHING_NEW: True}
            yield dg.MaterializeResult(asset_key=key, metadata=kept, data_version=dg.DataVersion(str(done.epoch)))
        else:
            yield dg.AssetObservation(key, metadata=shown)
        yield from checks.check_epoch(key, done)

    return rebalance
