"""`<pipeline>/{ownership,records,checkpoints}`: one multi-asset, partitioned by source partition, run for a worker."""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from assets import names
from resources.spark import SparkResource
from resources.zookeeper import ZooKeeperResource
from rota.pipeline import Pipeline


class Replay(dg.Config):
    """The offsets [from, to) to read and write again, of every partition of the run."""

    start: int = Field(alias="from", ge=0)
    end: int = Field(alias="to", ge=0)


class Batch(dg.Config):
    """What a run works on. Left empty (a click, a backfill): the keys selected on the page, whoever owns them now."""

    incarnation: str = ""
    partitions: list[str] = []  # noqa: RUF012 (a pydantic field)
    replay: Replay | None = None


def consumed(pipeline: Pipeline) -> dg.AssetsDefinition:
    """The three assets of a pipeline. Law: every launch means "consume what is new", unless its config says replay."""
    keys = (names.ownership(pipeline.name), names.records(pipeline.name), names.checkpoints(pipeline.name))
    described = (
        "Who worked on each partition, under which token.",
        f"The rows in `{pipeline.table.path}/main`, a batch a materialization.",
        "How far each partition got: the offset of the next unread record.",
    )
    kinds = ({"zookeeper"}, {"spark", "deltalake"}, {"zookeeper"})
    parents = (names.assignment(pipeline.group), *keys)

    @dg.multi_asset(
        name=names.consume_op(pipeline.name),
        partitions_def=names.partition_set(pipeline.name),
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=names.name(pipeline.group),
        specs=[
            dg.AssetSpec(
                key,
                deps=[parent],
                skippable=True,
                kinds=kind,
                description=text,
                owners=[f"team:{pipeline.group}"],
                code_version="1" if key == keys[0] else None,
            )
            for key, parent, kind, text in zip(keys, parents, kinds, described, strict=False)
        ],
    )
    def consume(
        context: dg.AssetExecutionContext, config: Batch, zookeeper: ZooKeeperResource, spark: SparkResource
    ) -> Iterator[object]:
        from rota.consume import consume as verb

        yield from verb(config, context.run_id, zookeeper, spark)

    return consume
