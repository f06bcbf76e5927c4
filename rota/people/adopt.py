"""`rota adopt`: takes over tables of another group or of a former ZooKeeper, or continues after a restore.

Law: afterwards, this group's tokens are above every token in its tables, and its checkpoints equal the tables' offsets.
The former owner of the tables is stopped at its next claim. The group continues at the tables' offsets, even if another
program changed rows. A partition that the tables do not know begins anew. A table keeps its pipeline.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from rota.coordination import token_base as coordination
from rota.coordination.group_state import GroupState
from rota.coordination.parking import unpark
from rota.coordination.records import Checkpoint
from rota.errors import CoordinationError
from rota.pipeline import Pipeline
from rota.registry import open_tables


@dataclass(frozen=True, slots=True)
class Adopted:
    """Where the group continues: `token_base` and offsets. The partitions in `anew` begin anew: their table lost them."""

    token_base: int
    offsets: Mapping[str, int]
    anew: tuple[str, ...] = ()


def gone(tree: GroupState, pipeline: Pipeline) -> tuple[str, ...]:
    """Return the partitions that were consumed into a table that is gone. After an adoption they begin anew."""
    main = open_tables(pipeline, tree.group, "").main  # the table's owner does not matter here
    return () if main.open() else tuple(tree.checkpoints(_partitions(tree, pipeline)))


def adopt(tree: GroupState, pipelines: Iterable[Pipeline]) -> Adopted:
    """Adopt the tables of these pipelines, which are all of one group.

    Raises ConfigError while runs of the group are alive or if one of its records cannot be read. Raises ForeignTable if
    a table belongs to another pipeline. To change the name of a pipeline and keep its offsets, use `rota rename`.
    """
    coordination.check_adoptable(tree)
    meta, greatest, checkpoints, before = tree.meta(), 0, dict[str, Checkpoint | None](), tree.pipelines()
    found = {one.name: (one, open_tables(one, tree.group, meta.id)) for one in pipelines}
    for _, tables in found.values():
        for table in (tables.main, tables.quarantine):
            table.check_adoptable()  # all tables before the first is adopted
    for pipeline, tables in found.values():
        for table in (tables.main, tables.quarantine):
            if table.open():
                greatest = max(greatest, table.adopt())
        known = _partitions(tree, pipeline)
        consumed = tree.checkpoints(known)
        for p, position in tables.main.read_positions(tuple(known | tables.main.list_partitions())).items():
            if position.offset is not None:
                greatest = max(greatest, position.token or 0)
                checkpoints[p] = Checkpoint(
                    offset=position.offset, token=position.token or 0, run_id="adopt", table=position.table or ""
                )
            elif p in consumed:
                checkpoints[p] = None
    meta = coordination.adopt(tree, greatest, checkpoints, before)
    for partition in tree.store.children(tree.paths.parked):
        with suppress(CoordinationError):
            unpark(tree, partition)
    offsets = {p: c.offset for p, c in checkpoints.items() if c}
    return Adopted(meta.token_base, offsets, tuple(p for p, c in checkpoints.items() if c is None))


def _partitions(tree: GroupState, pipeline: Pipeline) -> set[str]:
    record = tree.partitions().get(pipeline.name)
    return {pipeline.partition(key) for key in record.keys} if record else set()
