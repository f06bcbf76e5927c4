"""`<group>/membership` and `<group>/assignment`: who is live, and who shall work on what."""

from collections.abc import Iterator, Mapping

import dagster as dg

from assets import checks, metadata, names, picture
from resources.zookeeper import ZooKeeperResource
from rota.ids import dagster_name
from rota.pipeline import Group, Pipeline


def membership(group: Group, pipelines: tuple[Pipeline, ...], refused: Mapping[str, str]) -> dg.AssetSpec:
    """The external asset that the sensor of its name observes; shows the files that gave no pipeline."""
    lines = "".join(f"\n\n**Refused: `{file}`.** {why}" for file, why in refused.items())
    served = ", ".join(pipeline.name for pipeline in pipelines) or "no pipeline"
    return dg.AssetSpec(
        names.membership(group.name),
        group_name=dagster_name(group.name),
        kinds={"zookeeper"},
        owners=[f"team:{group.name}"],
        description=f"The live workers of group `{group.name}`, which serves {served}. "
        f"Observed when somebody joins or leaves, or when a wish or the partitions change.{lines}",
        metadata={"assignor": group.assignor, "pipelines": served, "refused": dict(refused)},
    )


def every_file_served(group: Group, refused: Mapping[str, str]) -> dg.AssetChecksDefinition:
    """Red while a file gives no pipeline: whose table another file took, for one. The sensor tells it by itself."""
    key = names.membership(group.name)

    @dg.asset_check(asset=key, name=checks.SERVED, description="Every file of the folder gives what it declares.")
    def check() -> dg.AssetCheckResult:
        said = checks.served(key, refused)
        return dg.AssetCheckResult(passed=said.passed, description=said.description, metadata=said.metadata)

    return check


def assignment(group: Group, pipelines: tuple[Pipeline, ...]) -> dg.AssetsDefinition:
    """The group's target: each materialization is an epoch; a round that moves nothing is an observation."""
    key = names.assignment(group.name)

    @dg.asset(
        key=key,
        deps=[names.membership(group.name)],
        group_name=dagster_name(group.name),
        kinds={"zookeeper"},
        owners=[f"team:{group.name}"],
        code_version="1",
        output_required=False,
        check_specs=checks.of_group(key),
        description=f"Which worker of group `{group.name}` shall work on which partition, by assignor "
        f"`{group.assignor}`. Its history holds the epochs; each opens with what happened and why.",
    )
    def rebalance(context: dg.AssetExecutionContext, zookeeper: ZooKeeperResource) -> Iterator[object]:
        from rota.rebalance import rebalance as verb

        with zookeeper.tree(group.name) as tree:
            done = verb(tree, context.run.run_id)
            context.log.info(done.sentence)
            shown = metadata.epoch(done, picture.ribbon(tree, pipelines) if done.published else {})
        if done.published:
            yield dg.MaterializeResult(asset_key=key, metadata=shown, data_version=dg.DataVersion(str(done.epoch)))
        else:
            yield dg.AssetObservation(key, metadata=shown)
        yield from checks.of_epoch(key, done)

    return rebalance
