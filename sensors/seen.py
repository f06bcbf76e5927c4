"""The sensors of this code location in Dagster's storage, as a value for `rota.face.needs`."""

from collections.abc import Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import dagster as dg

from rota.dagster.private import DagsterUserCodeUnreachableError, InstigatorState, InstigatorTick
from rota.dagster.sensors.runs import shorten

if TYPE_CHECKING:
    from rota.face.seen import SensorSeen, Tick

TICKS = 20  # of a sensor that are looked at


def see_sensors(
    context: dg.SensorEvaluationContext, names: Container[str], pipelines: Mapping[str, str] = MappingProxyType({})
) -> "Iterator[SensorSeen]":
    """The sensors of these names; `pipelines` is sensor -> pipeline. A tick calls this: the last tick is now."""
    from rota.face.seen import SensorSeen, blame_sensors

    instance = context.instance
    states = [
        state
        for state in (instance.all_instigator_state() if instance.schedule_storage else [])
        if state.name in names and is_here(context, state.repository_selector.location_name)
    ]
    ticks = [[_describe(tick) for tick in _read_ticks(instance, one)] if one.is_running else [] for one in states]
    for state, blamed in zip(states, blame_sensors(ticks), strict=True):
        yield SensorSeen.of_ticks(state.name, state.is_running, blamed, 0.0, pipelines.get(state.name, ""))


def _read_ticks(instance: dg.DagsterInstance, state: InstigatorState) -> Sequence[InstigatorTick]:
    return instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=TICKS)


def _describe(tick: InstigatorTick) -> "Tick":
    from rota.face.seen import Tick

    why = (shorten(tick.error) or "its ticks fail") if tick.is_failure else ""
    kind = (tick.error.cls_name if tick.error else None) or ""
    lost = kind == DagsterUserCodeUnreachableError.__name__
    return Tick(
        tick.timestamp, tick.end_timestamp or tick.timestamp, tick.is_completed, tick.is_failure, why, lost, kind
    )


def find_location(context: dg.SensorEvaluationContext) -> str:
    """The name of this sensor's code location; empty without a code server."""
    origin = context.code_location_origin
    return origin.location_name if origin else ""


def is_here(context: dg.SensorEvaluationContext, location: str) -> bool:
    """Whether that is the code location of this sensor."""
    return find_location(context) in ("", location)
