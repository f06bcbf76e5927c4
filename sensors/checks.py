"""`<pipeline>__checks`: observes a whole pipeline, and reports the checks and owners that the page does not have."""

import time
from dataclasses import replace

import dagster as dg

from rota.dagster.assets import checks
from rota.dagster.assets.check_results import find_unshown
from rota.dagster.assets.failure import ExpectedFailure, in_one_line
from rota.dagster.assets.names import Names
from rota.dagster.assets.pipeline_checks import Memory, evaluate_pipeline, load_memory
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.dagster.sensors import runs
from rota.dagster.sensors.owners import show_claims
from rota.dagster.sensors.seen import read_sensors
from rota.face.dagster_state import DagsterSeen
from rota.held import Held
from rota.ids import REBALANCE_TAG, WORKER_TAG
from rota.pipeline import Pipeline

TICK = 15  # seconds between two ticks; most ticks observe nothing
MIN_PAUSE = 25.0  # seconds between two observations
PAUSE_FACTOR = 20  # the pause as a multiple of the observation's duration: seconds with 100,000 partitions
SILENT = 75.0  # seconds without an observation after which the page reports that
MAX_PAUSE = 45.0  # seconds between two observations, on a busy machine, too


def make_checks_sensor(pipeline: Pipeline, names: Names) -> dg.SensorDefinition:
    """Return the sensor.

    Invariants: it also observes a pipeline without runs. A rewritten file, a parked or an unowned partition is on the page
    within two observations. Observations take a twentieth of the time, unless the pause would be longer than `MAX_PAUSE`
    seconds. A need that may heal is observed again when it is due. The code server caches the logs of tables and indexes
    between ticks. No result of a check keeps the backlog sensor from launching runs.
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
        if 0 <= began - before.at < (pause := choose_pause(before)):  # the clock may have been set back
            return dg.SkipReason(
                f"the last observation took {before.took:.1f} s; the next one is {pause:.0f} s after it"
            )
        try:
            with in_one_line(), rota_zookeeper.tree(pipeline.group) as tree:
                if not tree.exists():
                    return dg.SkipReason(f"group {pipeline.group} is not founded yet")
                evaluations, memory = evaluate_pipeline(
                    tree, pipeline, names, before, see_dagster(context, pipeline, names), held
                )
                moved, upto = show_claims(context.instance, tree, pipeline, names, before.claims)
        except ExpectedFailure as error:
            if abs(began - before.at) >= SILENT:
                silence = checks.evaluate_silence(pipeline, names, str(error.description), error.kind)
                for one in find_unshown(context.instance, [silence]):  # Dagster drops the events of a tick that fails
                    context.instance.report_runless_asset_event(one)
            raise
        for claim in moved:  # before the checks: the page counts a check only for the newest materialization
            context.instance.report_runless_asset_event(claim)
        unshown = find_unshown(context.instance, evaluations)
        memory = replace(memory, at=(now := time.time()), took=max(0.0, now - began), claims=upto)
        wrong = ", ".join(one.check_name for one in evaluations if not one.passed)
        return dg.SensorResult(
            skip_reason=f"failed: {wrong}" if wrong else "all checks passed",
            asset_events=[*unshown, *moved],
            cursor=memory.dump(),
        )

    return report


def choose_pause(memory: Memory) -> float:
    """Return the seconds from the observation that left this memory to the next one."""
    pause = min(MAX_PAUSE, max(MIN_PAUSE, PAUSE_FACTOR * memory.took))
    return pause if memory.due is None else min(pause, memory.due)


def see_dagster(context: dg.SensorEvaluationContext, pipeline: Pipeline, names: Names) -> DagsterSeen:
    """Read the runs and rebalances that failed in a row, and the sensors of the pipeline, from Dagster's storage."""
    failed = runs.Runs.of(context, names.consume_job(pipeline.name)).read_failures(WORKER_TAG)
    rebalances = runs.Runs.of(context, names.rebalance_job(pipeline.group)).read_failures(REBALANCE_TAG)
    backlog, membership = names.backlog_sensor(pipeline.name), names.membership_sensor(pipeline.group)
    sensors = tuple(read_sensors(context, (backlog, membership), {backlog: pipeline.name}))
    return DagsterSeen(
        sensors=sensors,
        failed={pipeline.name: failed} if failed else {},
        rebalances={pipeline.group: rebalances[0]} if rebalances else {},
    )
