"""Reads the sensors of this code location from Dagster's storage, for `rota.face.needs`."""

from collections.abc import Container, Mapping
from types import MappingProxyType

import dagster as dg

from rota.dagster.private import InstigatorState, InstigatorTick
from rota.dagster.sensors.runs import shorten
from rota.face.dagster_state import TICKS, SensorRow, SensorSeen, Tick, judge_sensors


def read_sensors(
    context: dg.SensorEvaluationContext, names: Container[str], pipelines: Mapping[str, str] = MappingProxyType({})
) -> list[SensorSeen]:
    """Return the sensors of these names. A tick calls this, so the newest tick is the current one.

    Args:
        context: the context of the tick.
        names: the names of the sensors.
        pipelines: sensor -> its pipeline.
    """
    instance = context.instance
    rows = []
    for state in instance.all_instigator_state() if instance.schedule_storage else []:
        if state.name in names and is_here(context, state.repository_selector.location_name):
            ticks = _read_ticks(instance, state) if state.is_running else []
            rows.append(SensorRow(state.name, state.is_running, ticks, pipeline=pipelines.get(state.name, "")))
    return judge_sensors(rows, 0.0)[0]


def _read_ticks(instance: dg.DagsterInstance, state: InstigatorState) -> list[Tick]:
    return [_make_tick(one) for one in instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=TICKS)]


def _make_tick(tick: InstigatorTick) -> Tick:
    why = (shorten(tick.error) or "its ticks fail") if tick.is_failure else ""
    kind = (tick.error.cls_name if tick.error else None) or ""
    return Tick(tick.timestamp, tick.end_timestamp or tick.timestamp, tick.is_completed, tick.is_failure, why, kind)


def find_location(context: dg.SensorEvaluationContext) -> str:
    """Return the name of this sensor's code location; empty without a code server."""
    origin = context.code_location_origin
    return origin.location_name if origin else ""


def is_here(context: dg.SensorEvaluationContext, location: str) -> bool:
    """Return whether this is the code location of the sensor."""
    return find_location(context) in ("", location)
