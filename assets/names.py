"""The names of the face. Law: each comes from the id of a group or pipeline alone, and no two ids share one.

Dagster allows `[A-Za-z0-9_]` in the names of sensors, jobs and ops, an id of rota also `-` and `.`: these two become
`_2d` and `_2e`, and an `_` that could be taken for one of them `_5f`. Asset keys and partition sets keep the id as it is.
"""

import re

import dagster as dg


def name(*parts: str) -> str:
    """The parts as one Dagster name: `name("eu-west", "membership") == "eu_2dwest__membership"`."""
    return "__".join(re.sub(r"[-.]|_(?=2d|2e|5f)", lambda m: f"_{ord(m[0]):02x}", part) for part in parts)


def membership(group: str) -> dg.AssetKey:
    """Who is live; observed by the sensor of that name."""
    return dg.AssetKey([group, "membership"])


def assignment(group: str) -> dg.AssetKey:
    """Who shall work on what; its history holds the epochs."""
    return dg.AssetKey([group, "assignment"])


def ownership(pipeline: str) -> dg.AssetKey:
    """Who worked on a partition, under which token."""
    return dg.AssetKey([pipeline, "ownership"])


def records(pipeline: str) -> dg.AssetKey:
    """The rows that a batch put into the table."""
    return dg.AssetKey([pipeline, "records"])


def checkpoints(pipeline: str) -> dg.AssetKey:
    """How far a partition got."""
    return dg.AssetKey([pipeline, "checkpoints"])


def consumed(pipeline: str) -> tuple[dg.AssetKey, dg.AssetKey, dg.AssetKey]:
    """The three assets of a pipeline, in the order of the line."""
    return ownership(pipeline), records(pipeline), checkpoints(pipeline)


def partition_set(pipeline: str) -> dg.DynamicPartitionsDefinition:
    """The source keys of a pipeline, as Dagster's partition keys."""
    return dg.DynamicPartitionsDefinition(name=f"{pipeline}/partitions")


def rebalance_job(group: str) -> str:
    """The job that makes `<group>/assignment`."""
    return name(group, "rebalance")


def consume_job(pipeline: str) -> str:
    """The job that makes the pipeline's three assets."""
    return name(pipeline, "consume")


def consume_op(pipeline: str) -> str:
    """The one step of that job: whose config a run carries."""
    return name(pipeline, "batch")
