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
    """The offsets that are read again in each partition of the run, and whose rows are replaced.

    One of these: the offsets [from, to); `files`; all that was consumed from `since` to `until` (ISO 8601, UTC by default),
    or with `stamped` all records with such timestamps; the files that `changed` after they were consumed.
    """

    start: int | None = Field(default=None, alias="from", ge=0)
    end: int | None = Field(default=None, alias="to", ge=0)
    files: list[str] = []  # noqa: RUF012 (a pydantic field)
    since: str = ""
    until: str = ""
    stamped: bool = False
    changed: bool = False

    def choose(self) -> "Choice":
        """Return the choice of this config. Raises ConfigError."""
        from rota.run.spans import Choice, parse_time

        given = None if self.start is None and self.end is None else (self.start or 0, self.end or 0)
        times = (parse_time(self.since, 0.0), parse_time(self.until, math.inf)) if self.since or self.until else None
        return Choice(given, tuple(self.files), times, self.changed, self.stamped)


class Batch(dg.Config):
    """What a run works on. Empty (a click, a backfill): the partitions selected on the page, for their current owners.

    Law: a run without an incarnation, whose config a user typed, refuses an unknown partition before it does anything. The
    partitions that a sensor or the page names may have been forgotten since: such a run consumes the others."""

    incarnation: str | None = None
    partitions: list[str] | None = None
    replay: Replay | None = None


def make_specs(pipeline: Pipeline, names: Names) -> list[dg.AssetSpec]:
    """Return the three assets. Only the first has a parent outside the step, as Dagster requires of an unpartitioned one."""
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
            description=f"Which worker owns each partition of `{pipeline.name}`, under which token and epoch: reported with "
            "its first batch, or within two observations of the checks if nothing landed since it moved.",
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
    """Return the columns of the table at `place`, which the page shows if the newest materialization has none, as most have.
    Empty if there is no table yet, or it cannot be read."""
    if not Path(place).is_dir():  # to import what reads tables takes time
        return {}
    from rota.registry import open_tables
    from rota.run.samples import read_columns

    columns = read_columns(open_tables(pipeline, pipeline.group).main)
    return {page_keys.SCHEMA: metadata.make_schema(columns)} if columns else {}


def _fill_in(path: str) -> str:
    """Return the path with its variables replaced; as it was declared if a variable is not set here."""
    try:
        return mask(expand(path))
    except ConfigError:
        return path


def make_pipeline_assets(pipeline: Pipeline, names: Names) -> dg.AssetsDefinition:
    """Return the three assets of a pipeline.

    Invariants: each launch consumes new records, unless its config has a replay. A run for a worker serves the worker. A
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
