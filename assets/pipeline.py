"""`<pipeline>/{ownership,records,checkpoints}`: one multi-asset, partitioned by source partition."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from rota.dagster.assets import batch, metadata, page_keys, provenance
from rota.dagster.assets.failure import in_one_line
from rota.dagster.assets.liveness import prove_liveness
from rota.dagster.assets.names import Names
from rota.dagster.resources.spark import SparkResource
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.errors import ConfigError, mask
from rota.ids import dagster_name, worker_of
from rota.pipeline import Pipeline
from rota.settings import expand

if TYPE_CHECKING:
    from rota.run.spans import Choice


class Replay(dg.Config):
    """What is read again of each partition of the run, and whose rows are replaced.

    One of these: the offsets [from, to); `files`; what was consumed from `since` to `until` (ISO 8601, UTC by default), or
    with `stamped` what has such timestamps in the source; what `changed` since.
    """

    start: int | None = Field(default=None, alias="from", ge=0)
    end: int | None = Field(default=None, alias="to", ge=0)
    files: list[str] = []  # noqa: RUF012 (a pydantic field)
    since: str = ""
    until: str = ""
    stamped: bool = False
    changed: bool = False

    def choose(self) -> "Choice":
        """The choice that the config means. Raises ConfigError."""
        from rota.run.spans import Choice, parse_time

        given = None if self.start is None and self.end is None else (self.start or 0, self.end or 0)
        times = (parse_time(self.since, 0.0), parse_time(self.until, math.inf)) if self.since or self.until else None
        return Choice(given, tuple(self.files), times, self.changed, self.stamped)


class Batch(dg.Config):
    """What a run works on. Left empty (a click, a backfill): the partitions selected on the page, for their owners of now.

    Law: a partition that the group does not know is refused, before anything is done, where a person typed it: in a config
    without an incarnation. What a sensor or the page names may have been forgotten since, and the others go on."""

    incarnation: str | None = None
    partitions: list[str] | None = None
    replay: Replay | None = None


def make_specs(pipeline: Pipeline, names: Names) -> list[dg.AssetSpec]:
    """The three assets. Only the first has a parent outside the step, as Dagster requires of an unpartitioned parent."""
    shown: dict[str, Any] = {
        "group_name": dagster_name(pipeline.name),  # two pipelines of a group of workers are two rows on the page
        "owners": list(pipeline.owners) or [f"team:{pipeline.group}"],
        "tags": dict(pipeline.tags),
        "automation_condition": pipeline.automation,
        "skippable": True,
    }
    ownership, records, checkpoints = names.consumed(pipeline.name)
    place = f"{_fill_in(pipeline.table.path)}/main"
    return [
        dg.AssetSpec(
            ownership,
            deps=[names.assignment(pipeline.group)],
            kinds={"zookeeper"},
            code_version=provenance.CODE_VERSION,
            description=f"Which worker owns each partition of `{pipeline.name}`, under which token and epoch: noted with "
            "its first batch, or within two looks of the checks if nothing landed since it moved.",
            **shown,
        ),
        dg.AssetSpec(
            records,
            deps=[ownership],
            kinds=set(pipeline.kinds) or {"spark", "deltalake"},
            freshness_policy=pipeline.freshness,
            description=f"The rows in `{place}`. Each materialization is a batch.",
            metadata={"dagster/uri": place, "dagster/table_name": pipeline.name, **_show_columns(pipeline, place)},
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


def _show_columns(pipeline: Pipeline, place: str) -> dict[str, Any]:
    """The columns of the table at `place`, for the asset itself: the page shows them where the newest materialization does
    not tell them, of most batches and of a replay. None where there is no table yet, or it cannot be read."""
    if not Path(place).is_dir():  # what reads tables takes a while to import
        return {}
    from rota.registry import open_tables
    from rota.run.samples import read_columns

    columns = read_columns(open_tables(pipeline, pipeline.group).main)
    return {page_keys.SCHEMA: metadata.make_schema(columns)} if columns else {}


def _fill_in(path: str) -> str:
    """The path as a person looks for it; as it was declared where a variable is not set here."""
    try:
        return mask(expand(path))
    except ConfigError:
        return path


def make_pipeline_assets(pipeline: Pipeline, names: Names) -> dg.AssetsDefinition:
    """The three assets of a pipeline.

    Invariants: each launch consumes what is new, unless its config has a replay. A run for a worker serves it for a while. A
    click consumes once.
    """

    @dg.multi_asset(
        name=names.consume_op(pipeline.name),
        partitions_def=names.partition_set(pipeline.name),
        backfill_policy=dg.BackfillPolicy.single_run(),
        specs=make_specs(pipeline, names),
    )
    def consume(
        context: dg.AssetExecutionContext, config: Batch, rota_zookeeper: ZooKeeperResource, rota_spark: SparkResource
    ) -> Iterator[object]:
        from rota.coordination.change_signal import ChangeSignal
        from rota.dagster.assets.ending import make_ending
        from rota.registry import open_ports
        from rota.run.answer import answer
        from rota.run.replay import plan_replay, replay
        from rota.run.serve import RunLimits, serve
        from rota.settings import Settings, check_known

        output = batch.RunOutput(context, pipeline, names)
        is_replay = context.run.job_name == names.replay_job(pipeline.name)  # without config, too, as from a backfill
        named = config.partitions or ()
        typed = () if config.incarnation else named
        with in_one_line():
            mine = output.choose_keys(named, config.incarnation or "")
            settings = Settings.from_environment()
        report = settings.report.total_seconds()
        with in_one_line(), prove_liveness(context, rota_zookeeper, pipeline.group) as tree:
            ports = open_ports(pipeline, tree.group, tree.meta().id, rota_spark.connect)
            known = tree.ids() if typed else {}
            for partition in typed:
                check_known("partition", partition, known)
            if again := config.replay or (Replay(changed=True) if is_replay else None):
                rounds = plan_replay(ports, mine, again.choose())
                for ranges in rounds:
                    for done in replay(tree, ports, ranges, context.run.run_id):
                        yield from output.show_replay(done, tree, ports)
                yield from output.show_unreplayed(p for p in mine if not any(p in ranges for ranges in rounds))
            elif one := config.incarnation:
                limits = RunLimits(settings.linger.total_seconds(), settings.max_run.total_seconds())
                session, run_id = tree.store.session, context.run.run_id
                changed, target = ChangeSignal(), tree.paths.assign(worker_of(one))
                ending = make_ending(
                    context.instance,
                    run_id,
                    pipeline,
                    limits.linger,
                    ports.clock,
                    lambda: tree.store.session == session,
                )
                served = serve(
                    tree,
                    pipeline,
                    one,
                    mine,
                    run_id,
                    ports,
                    limits,
                    wait=changed.wait,
                    listen=lambda: changed.listen(tree.store, target),
                    find_reason=ending,
                )
                yield from output.show_work(((one, event) for event in served), ports, report)
                yield from output.settle_idle()
            else:
                answers = answer(tree, pipeline, mine, context.run.run_id, ports)
                yield from output.show_work(answers, ports, report)
        output.raise_refused()
        output.raise_parked()

    return consume
