"""`rota rename`: moves the table and the group's records of a pipeline to the new name of its file.

Law: nothing is read twice and nothing is lost, wherever it stops. The same command continues an interrupted rename. The
table's log decides: the first commit takes the table from the old name, which fences every run under that name. The
last commit gives the table to the new name. A table that does not belong to the old name is left alone.
"""

from rota.coordination import pipeline_records as coordination
from rota.coordination.group_state import GroupState
from rota.coordination.records import Checkpoint
from rota.errors import ConfigError
from rota.ids import checked_id, partition_id, pipeline_of, rename_id
from rota.ledger import renaming
from rota.pipeline import Pipeline
from rota.registry import open_tables, rename_offsets


def rename(tree: GroupState, old: str, pipeline: Pipeline) -> int | None:
    """Rename `old` to the name of `pipeline`, which declares the table. Return how many partitions continue; None if an
    earlier call finished the rename.

    Raises ConfigError or ForeignTable, before anything is written, if `old` of this group does not own the table, or if
    a run of `old` is under way.
    """
    new = pipeline.name
    if checked_id("pipeline", old) == new:
        raise ConfigError(f"{old!r} is its name already. Give the old name, then the new one")
    tables = open_tables(pipeline, tree.group, tree.meta().id)
    if renaming.is_renamed(tables.main, old, tables.main.open()):
        return None
    log = (p for p in tables.main.list_partitions() if pipeline_of(p) == old)
    ids = {p: rename_id(p, old, new) for p in (*log, *(partition_id(old, key) for key in _keys(tree, old, new)))}
    coordination.check(tree, old, new, ids)
    renaming.check_rewritable(tables.main)
    renaming.check_rewritable(tables.quarantine)
    if (number := renaming.begin_rename(tables.main, old, ids)) is None:
        return None
    rename_offsets(pipeline, old, number)
    tables.quarantine.open_or_make()  # create it if missing: a late run must not create it for the old name
    renaming.finish_rename(tables.quarantine, old, ids)
    positions = renaming.read_renamed_positions(tables.main, old, ids)
    consumed = {p: one for p, one in positions.items() if one.offset is not None}
    checkpoints = {
        p: Checkpoint(offset=one.offset or 0, token=one.token or 0, run_id="rename", table=one.table or "")
        for p, one in consumed.items()
    }
    coordination.rename_pipeline(tree, old, new, ids, checkpoints)
    renaming.finish_rename(tables.main, old, ids)
    return len(consumed)


def _keys(tree: GroupState, *pipelines: str) -> set[str]:
    known = tree.partitions()
    return {key for name in pipelines if name in known for key in known[name].keys}
