"""The names of the face, as Dagster's objects. Law: each comes from the id of a group or pipeline alone, and no two ids
share one; `rota.ids` has the grammar.
"""

import dagster as dg

from rota import ids


def membership(group: str) -> dg.AssetKey:
    """Who is live; observed by the sensor of that name."""
    return dg.AssetKey(ids.asset_key(group, "membership"))


def assignment(group: str) -> dg.AssetKey:
    """Who shall work on what; its history holds the epochs."""
    return dg.AssetKey(ids.asset_key(group, "assignment"))


def ownership(pipeline: str) -> dg.AssetKey:
    """Who worked on a partition, under which token."""
    return dg.AssetKey(ids.asset_key(pipeline, "ownership"))


def records(pipeline: str) -> dg.AssetKey:
    """The rows that a batch put into the table."""
    return dg.AssetKey(ids.asset_key(pipeline, "records"))


def checkpoints(pipeline: str) -> dg.AssetKey:
    """How far a partition got."""
    return dg.AssetKey(ids.asset_key(pipeline, "checkpoints"))


def consumed(pipeline: str) -> tuple[dg.AssetKey, dg.AssetKey, dg.AssetKey]:
    """The three assets of a pipeline, in the order of the line."""
    return ownership(pipeline), records(pipeline), checkpoints(pipeline)


def partition_set(pipeline: str) -> dg.DynamicPartitionsDefinition:
    """The partition ids of a pipeline, as Dagster's partition keys."""
    return dg.DynamicPartitionsDefinition(name=ids.partition_set(pipeline))


def rebalance_job(group: str) -> str:
    """The job that makes `<group>/assignment`."""
    return ids.dagster_name(group, "rebalance")


def consume_job(pipeline: str) -> str:
    """The job that makes the pipeline's three assets."""
    return ids.dagster_name(pipeline, "consume")


def consume_op(pipeline: str) -> str:
    """The one step of that job: whose config a run carries."""
    return ids.dagster_name(pipeline, "batch")
