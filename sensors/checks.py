"""`<pipeline>__checks`: looks at a whole pipeline and reports the checks and the owners that the page does not show."""

import time
from dataclasses import replace

import dagster as dg

from rota.dagster.assets import checks
from rota.dagster.assets.failure import ExpectedFailure, in_one_line
from rota.dagster.assets.look import Memory, load_memory, look
from rota.dagster.assets.names import Names
from rota.dagster.assets.standing import find_unshown
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.dagster.sensors import runs
from rota.dagster.sensors.owners import show_claims
from rota.dagster.sensors.seen import read_sensors
from rota.face.dagster_state import DagsterSeen
from rota.held import Held
from rota.ids import REBALANCE_TAG, WORKER_TAG
from rota.pipeline import Pipeline

TICK = 15  # seconds between two ticks; most look at nothing
PAUSE = 25.0  # seconds between two looks, at least
REST = 20  # times as long as a look took is the pause after it: at 100,000 partitions one takes seconds
SILENT = 75.0  # seconds since the last look after which it is on the page that there is none
LONGEST = 45.0  # seconds of such a pause: a look on a busy machine is no reason for the next one to be late


def make_checks_sensor(pipeline: Pipeline, names: Names) -> dg.SensorDefinition:
    """The sensor.

    Invariants: it also looks at a pipeline without runs. A rewritten file, a parked or an unowned partition is on the page
    within two looks. Looks take a twentieth of the time, unless that makes a pause longer than `LONGEST` seconds. What may
    heal is looked at again when it should have. The code server keeps what the looks have read of tables and indexes.

    The backlog sensor, which launches runs, is another one: a pipeline whose checks fail is consumed as far as possible.
    """
    held = Held()

    @dg.sensor(
        name=names.checks(pipeline.name),
        minimum_interval_seconds=TICK,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Reports the checks of pipeline {pipeline.name} when their results change.",
    )
    def report(
        context: dg.SensorEvaluationContext, rota_zookeeper: ZooKeeperResource
    ) -> dg.SensorResult | dg.SkipReason:
        began, before = time.time(), load_memory(context.cursor)
        if 0 <= began - before.at < (pause := choose_pause(before)):  # the clock may have gone back
            return dg.SkipReason(f"the last look took {before.took:.1f} s; the next one is {pause:.0f} s after it")
        try:
            with in_one_line(), rota_zookeeper.tree(pipeline.group) as tree:
                if not tree.exists():
                    return dg.SkipReason(f"group {pipeline.group} is not founded yet")
                said, memory = look(tree, pipeline, names, before, see_dagster(context, pipeline, names), held)
                moved, upto = show_claims(context.instance, tree, pipeline, names, before.claims)
        except ExpectedFailure as error:
            if abs(began - before.at) >= SILENT:
                silence = checks.evaluate_silence(pipeline, names, str(error.description), error.kind)
                for one in find_unshown(context.instance, [silence]):  # a tick that fails reports nothing by itself
                    context.instance.report_runless_asset_event(one)
            raise
        for claim in moved:  # before the checks: the page counts only those that name the newest materialization
            context.instance.report_runless_asset_event(claim)
        unshown = find_unshown(context.instance, said)
        memory = replace(memory, at=(now := time.time()), took=max(0.0, now - began), claims=upto)
        wrong = ", ".join(one.check_name for one in said if not one.passed)
        return dg.SensorResult(
            skip_reason=f"not right: {wrong}" if wrong else "all is right",
            asset_events=[*unshown, *moved],
            cursor=memory.dump(),
        )

    return report


def choose_pause(memory: Memory) -> float:
    """Seconds from the look that left this memory to the next."""
    pause = min(LONGEST, max(PAUSE, REST * memory.took))
    return pause if memory.due is None else min(pause, memory.due)


def see_dagster(context: dg.SensorEvaluationContext, pipeline: Pipeline, names: Names) -> DagsterSeen:
    """The runs and rebalances that failed in a row, and the sensors of the pipeline, in Dagster's storage."""
    failed = runs.Runs.of(context, names.consume_job(pipeline.name)).read_failures(WORKER_TAG)
    rebalances = runs.Runs.of(context, names.rebalance_job(pipeline.group)).read_failures(REBALANCE_TAG)
    backlog, membership = names.backlog_sensor(pipeline.name), names.membership_sensor(pipeline.group)
    sensors = tuple(read_sensors(context, (backlog, membership), {backlog: pipeline.name}))
    return DagsterSeen(
        sensors=sensors,
        failed={pipeline.name: failed} if failed else {},
        rebalances={pipeline.group: rebalances[0]} if rebalances else {},
    )
