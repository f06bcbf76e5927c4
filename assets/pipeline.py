"""`<pipeline>/{ownership,records,checkpoints}`: one multi-asset, partitioned by source partition."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from rota.dagster.assets import batch, checks, provenance
from rota.dagster.assets.names import Names
from rota.dagster.resources.spark import SparkResource
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.ids import dagster_name
from rota.pipeline import Pipeline


class Replay(dg.Config):
    """Replays the offsets [from, to) of every partition of the run: reads them again and replaces their rows."""

    start: int = Field(alias="from", ge=0)
    end: int = Field(alias="to", ge=0)


class Batch(dg.Config):
    """What a run works on. Left empty (a click, a backfill): the partitions selected on the page, whoever owns them now."""

    incarnation: str = ""
    partitions: list[str] = []  # noqa: RUF012 (a pydantic field)
    replay: Replay | None = None


def make_specs(pipeline: Pipeline, names: Names) -> list[dg.AssetSpec]:
    """The three assets. Only the first has a parent outside the step, as Dagster requires of an unpartitioned parent."""
    shown: dict[str, Any] = {
        "group_name": dagster_name(pipeline.group),
        "owners": [f"team:{pipeline.group}"],
        "skippable": True,
    }
    ownership, records, checkpoints = names.consumed(pipeline.name)
    return [
        dg.AssetSpec(
            ownership,
            deps=[names.assignment(pipeline.group)],
            kinds={"zookeeper"},
            code_version=provenance.CODE_VERSION,
            description=f"Which worker worked on each partition of `{pipeline.name}`, under which token and epoch.",
            **shown,
        ),
        dg.AssetSpec(
            records,
            deps=[ownership],
            kinds={"spark", "deltalake"},
            description=f"The rows in `{pipeline.table.path}/main`. Each materialization is a batch.",
            **shown,
        ),
        dg.AssetSpec(
            checkpoints,
            deps=[records],
            kinds={"zookeeper"},
            description="The offset of the next unread record of each partition.",
            **shown,
        ),
    ]


def make_pipeline_assets(pipeline: Pipeline, names: Names) -> dg.AssetsDefinition:
    """The three assets of a pipeline. Laws: every launch means "consume what is new", unless its config says replay. A run
    for a worker serves it for a while. A click consumes once."""

    @dg.multi_asset(
        name=names.consume_op(pipeline.name),
        partitions_def=names.partition_set(pipeline.name),
        backfill_policy=dg.BackfillPolicy.single_run(),
        specs=make_specs(pipeline, names),
        check_specs=checks.list_checks(pipeline, names),
    )
    def consume(
        context: dg.AssetExecutionContext, config: Batch, rota_zookeeper: ZooKeeperResource, rota_spark: SparkResource
    ) -> Iterator[object]:
        from rota.answer import answer
        from rota.dagster.assets.ending import make_ending
        from rota.registry import open_ports
        from rota.replay import replay
        from rota.serve import Terms, serve
        from rota.settings import Settings

        output = batch.RunOutput(context, pipeline, names)
        mine = output.choose_keys(config.partitions)
        settings = Settings.from_environment()
        report = settings.report.total_seconds()
        with rota_zookeeper.tree(pipeline.group) as tree:
            ports = open_ports(pipeline, tree.group, tree.meta().id, rota_spark.connect)
            if config.replay:
                ranges = dict.fromkeys(mine, (config.replay.start, config.replay.end))
                for done in replay(tree, ports, ranges, context.run.run_id):
                    yield from output.show_replay(done, tree)
            elif one := config.incarnation:
                terms = Terms(settings.linger.total_seconds(), settings.max_run.total_seconds())
                ending = make_ending(context.instance, context.run.run_id, pipeline, terms.linger, ports.clock)
                served = serve(tree, pipeline, one, mine, context.run.run_id, ports, terms, find_reason=ending)
                yield from output.show_work(((one, event) for event in served), ports, report)
            else:
                answers = answer(tree, pipeline, mine, context.run.run_id, ports)
                yield from output.show_work(answers, ports, report)
            yield from output.run_checks(tree, ports, mine)
        output.raise_refused()

    return consume
