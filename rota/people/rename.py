"""A pipeline's file got another name: its table, and what the group knows of it, go along: `rota rename`.

Law: nothing is read twice and nothing is lost, wherever it stops: typed again, it goes on. The table's log is what counts:
it takes the table from the old name first, which fences every run of it, and gives it to the new name last, after
everything else is there. A table that is not the old name's is left alone.
"""

from rota.coordination import pipeline_records as coordination
from rota.coordination.group_state import GroupState
from rota.coordination.records import Checkpoint
from rota.dataplane.ports import FollowsRename
from rota.errors import ConfigError
from rota.ids import checked_id, partition_id, pipeline_of, rename_id
from rota.ledger import renaming
from rota.pipeline import Pipeline
from rota.registry import open_source, open_tables


def rename(tree: GroupState, old: str, pipeline: Pipeline) -> int | None:
    """How many partitions of `old` go on as those of `pipeline`, which declares the table; None: they did already.

    Raises ConfigError, ForeignTable, before anything is written, where the table is not `old`'s in this group, or a run of
    it is under way.
    """
    new = pipeline.name
    if checked_id("pipeline", old) == new:
        raise ConfigError(f"{old!r} is its name already. Give the old name, then the new one")
    tables, source = open_tables(pipeline, tree.group, tree.meta().id), open_source(pipeline)
    if renaming.is_renamed(tables.main, old):
        return None
    log = (p for p in tables.main.list_partitions() if pipeline_of(p) == old)
    ids = {p: rename_id(p, old, new) for p in (*log, *(partition_id(old, key) for key in _keys(tree, old, new)))}
    coordination.check(tree, old, new, ids)
    number = renaming.begin_rename(tables.main, old, ids)
    if isinstance(source, FollowsRename):
        source.rename_pipeline(old, number)
    tables.quarantine.open_or_make()  # also where there is none yet: who comes too late makes it for the old name no more
    renaming.finish_rename(tables.quarantine, old, ids)
    stands = renaming.read_renamed_positions(tables.main, old, ids)
    consumed = {p: one for p, one in stands.items() if one.offset is not None}
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
