"""Observes a whole pipeline, and evaluates each of its checks.

Invariant: a check fails for the needs that `rota.face.needs` finds, as in `rota status`. An observation starts from the
memory of the one before: the versions of the log that were read, their faults, and the age of each need. A first observation
and a click have no memory: they read the whole log, and each need is new. Ages are on ZooKeeper's clock.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import dagster as dg

from rota.dagster.assets import checks
from rota.dagster.assets.failure import in_one_line
from rota.dagster.assets.names import Names
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.held import Held
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.face.dagster_state import DagsterSeen
    from rota.face.health import TableSeen

OVERLAP = 500  # versions before the newest one of the last observation, which every observation reads again


@dataclass(frozen=True, slots=True)
class Memory:
    """What one observation passes to the next. It fits into a sensor's cursor."""

    upto: int = -1  # newest version of the log that was read
    stale: Mapping[str, str] = field(default_factory=dict)
    gaps: Mapping[str, str] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)  # see `rota.face.memory`
    behind: Mapping[str, tuple[float, int, int]] = field(default_factory=dict)
    seen: float | None = None  # when it was made, in server seconds
    at: float = 0.0  # when the observation ended, on the clock of the process that made it, in seconds since 1970
    took: float = 0.0  # seconds
    claims: int = 0  # the newest token of a claim that was compared with the page
    due: float | None = None  # seconds after the observation until one of its needs needs an operator, unless it heals

    def dump(self) -> str:
        """Return the memory as JSON."""
        return json.dumps(asdict(self))


def load_memory(text: str | None) -> Memory:
    """Return the memory of a dump; an empty one if there is none, or another version of rota wrote it."""
    try:
        stored = json.loads(text or "{}")
        return Memory(**{**stored, "behind": {p: (*lag,) for p, lag in stored.get("behind", {}).items()}})
    except (ValueError, TypeError, AttributeError):
        return Memory()


def evaluate_pipeline(
    tree: "GroupState",
    pipeline: Pipeline,
    names: Names,
    memory: Memory,
    dagster: "DagsterSeen | None" = None,
    held: Held | None = None,
) -> tuple[list[dg.AssetCheckEvaluation], Memory]:
    """Observe the pipeline, and evaluate its checks.

    Args:
        tree: the group of the pipeline.
        pipeline: the pipeline.
        names: its names on the page.
        memory: the memory of the observation before.
        dagster: the sensors and failed runs in Dagster's storage; None if they were not read.
        held: caches the logs of the table and the index.

    Returns:
        The evaluations of the checks of the pipeline and of its group, and the memory for the next observation.

    Raises:
        RotaError: the group cannot be read.
    """
    from rota.face import needs
    from rota.face.health import make_seen, read_pipeline, read_records
    from rota.face.memory import Memory as NeedsMemory

    facts, basis = read_records(tree, [pipeline.name])
    table, newest = read_table(tree, pipeline, basis.meta.id, facts.partitions, memory, held)
    one = read_pipeline(tree, pipeline, facts, table, held)
    if newest < memory.upto:  # the table was replaced, and the earlier faults with it
        memory = replace(memory, stale={}, gaps={})
    one = replace(one, stale={**memory.stale, **one.stale}, gaps={**memory.gaps, **one.gaps})
    seen = replace(make_seen(tree, facts, basis, [one]), dagster=dagster)
    found, kept = needs.find_needs(seen, NeedsMemory(memory.since, memory.behind, memory.seen))
    evaluations = checks.evaluate_needs(found, pipeline, names, len(facts.partitions))
    due = min((need.due - seen.now for need in found if not need.person and need.due < float("inf")), default=None)
    return evaluations, Memory(newest, one.stale, one.gaps, kept.since, kept.behind, kept.at, due=due)


def read_table(
    tree: "GroupState", pipeline: Pipeline, meta: str, ids: tuple[str, ...], memory: Memory, held: Held | None
) -> "tuple[TableSeen, int]":
    """Read the versions of the log that are new since the last observation, and the overlap. If the table was replaced, read
    all.

    Returns:
        The table, and its newest version.
    """
    from rota.errors import RotaError
    from rota.face.health import TableSeen, describe_refusal
    from rota.registry import open_tables
    from rota.run.rewritten import MAX_COMPARED_FILES

    try:
        main = open_tables(pipeline, tree.group, meta, held).main
        past = main.read_log(memory.upto - OVERLAP if memory.upto > OVERLAP else -1)
        newest = max((one.version for one in past), default=-1)
        if newest < memory.upto:
            past = main.read_log()
            newest = max((one.version for one in past), default=-1)
        return TableSeen(past, main.read_positions(ids), main.explain_harm(MAX_COMPARED_FILES)), newest
    except (RotaError, OSError) as error:
        return describe_refusal(error), memory.upto


def make_checks(pipeline: Pipeline, names: Names) -> dg.AssetChecksDefinition:
    """Return the checks of a pipeline, for a click. The sensor of the pipeline's checks reports them without a click.

    The step reads no asset of its run, so a click on "Materialize" evaluates them even if there are no new records.
    """
    specs = checks.list_checks(pipeline, names)

    @dg.op(
        name=names.checks(pipeline.name),
        out={spec.get_python_identifier(): dg.Out(dg.Nothing, is_required=False) for spec in specs},
    )
    def check(context: dg.OpExecutionContext, rota_zookeeper: ZooKeeperResource) -> Iterator[object]:
        with in_one_line(), rota_zookeeper.tree(pipeline.group) as tree:
            evaluations, _ = evaluate_pipeline(tree, pipeline, names, Memory())
        for one in evaluations:
            if one.asset_check_key in context.selected_asset_check_keys:
                yield checks.make_result(one)

    made: dg.AssetChecksDefinition = dg.AssetChecksDefinition.create(
        keys_by_input_name={},
        node_def=check,
        check_specs_by_output_name={spec.get_python_identifier(): spec for spec in specs},
        can_subset=True,
    )
    return made
