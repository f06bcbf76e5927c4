"""`<pipeline>__checks`: looks at a whole pipeline and reports the checks whose result is not the one on the page."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

import dagster as dg

from rota.dagster.assets.checks import read_said
from rota.dagster.assets.failure import in_one_line
from rota.dagster.assets.look import load_memory, look
from rota.dagster.assets.names import Names
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.pipeline import Pipeline

PAUSE = 30  # seconds between two looks, at least
REST = 20  # times as long as a look took is the pause after it: at 100,000 partitions one takes seconds
AGAIN = 300  # seconds after which what is still so is told again, of an asset that goes on being made


def make_checks_sensor(pipeline: Pipeline, names: Names) -> dg.SensorDefinition:
    """The sensor. Laws: a pipeline at which nobody works is looked at as well: a file that was rewritten, a partition that
    is parked or that nobody owns is on the page within two looks of when it counts. Looks take a twentieth of the time.

    It is not the backlog sensor, which launches: a pipeline that cannot be looked at is consumed as far as it can be.
    """

    @dg.sensor(
        name=names.checks(pipeline.name),
        minimum_interval_seconds=PAUSE,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Reports the checks of pipeline {pipeline.name} when their results change.",
    )
    def report(
        context: dg.SensorEvaluationContext, rota_zookeeper: ZooKeeperResource
    ) -> dg.SensorResult | dg.SkipReason:
        began, before = time.time(), load_memory(context.cursor)
        if 0 <= began - before.at < REST * before.took:  # the clock may have gone back
            return dg.SkipReason(f"the last look took {before.took:.1f} s; looks take a twentieth of the time at most")
        with in_one_line(), rota_zookeeper.tree(pipeline.group) as tree:
            if not tree.exists():
                return dg.SkipReason(f"group {pipeline.group} is not founded yet")
            said, memory = look(tree, pipeline, names, before)
        memory = replace(memory, at=(now := time.time()), took=max(0.0, now - began))
        told = find_unshown(context.instance, said, now)
        wrong = ", ".join(one.check_name for one in said if not one.passed)
        return dg.SensorResult(
            skip_reason=f"not right: {wrong}" if wrong else "all is right", asset_events=told, cursor=memory.dump()
        )

    return report


def find_unshown(
    instance: dg.DagsterInstance, said: Iterable[dg.AssetCheckEvaluation], now: float
) -> list[dg.AssetCheckEvaluation]:
    """The evaluations that the page does not show: it shows another, or none (as while a run was to evaluate the check), or
    one from before the newest materialization of the asset, which it does not count. Of the last, what says what is shown
    waits until the asset has rested for `PAUSE` s, or the page has not counted it for `AGAIN` s: told after each
    materialization, eight checks of a trickle would be a third of what Dagster stores."""
    find_made = cache(instance.get_latest_materialization_event)  # an asset has several checks
    return [one for one in said if not _is_shown(instance, one, now, find_made)]


def _is_shown(
    instance: dg.DagsterInstance,
    said: dg.AssetCheckEvaluation,
    now: float,
    find_made: Callable[[dg.AssetKey], dg.EventLogEntry | None],
) -> bool:
    if (last := read_said(instance, said.asset_check_key)) is None:
        return False
    shown, at = last
    if (shown.passed, shown.severity, dict(shown.metadata)) != (said.passed, said.severity, dict(said.metadata)):
        return False
    made = find_made(said.asset_key)
    if made is None or made.timestamp < at:
        return True
    # The clock may have gone back.
    return abs(now - made.timestamp) < PAUSE and abs(now - at) < AGAIN
