"""The changes of `rota adopt` in ZooKeeper after a lost or restored ZooKeeper, or a restored table: tokens only grow.

Laws:
1. Afterwards, every token of this group is above every token in the tables.
2. A checkpoint that was ahead of its table is set to the table's offset, or removed if the table does not know the
   partition. Only here may a checkpoint go back.
3. It changes nothing while a run is alive: no run may commit under a token that is being outgrown.
4. It begins only if every record can be read: `rota repair` comes first.
5. It leaves no checkpoint of a pipeline that was renamed or forgotten meanwhile: another pipeline may take that name.

The data plane detects that it is needed, and defines what a table carries: a meta id of another group, a token above
that of a current own record, a checkpoint ahead of its table.
"""

from collections.abc import Collection, Mapping

from rota.coordination.group_state import GroupState
from rota.coordination.membership import remove_node
from rota.coordination.records import Checkpoint, Meta
from rota.coordination.repair import check_readable
from rota.errors import ConfigError, counted
from rota.ids import parse_run, pipeline_of


def adopt(
    tree: GroupState,
    greatest_token: int,
    checkpoints: Mapping[str, Checkpoint | None] | None = None,
    pipelines: Collection[str] = (),
) -> Meta:
    """Raises the token base above `greatest_token`, the greatest in any of the group's tables, and sets the given
    checkpoints.

    Checkpoints are set to the tables' offsets (None: removed). `pipelines` are those that the group had before the tables
    were read. Returns the new settings. Raises ConfigError while runs are alive.
    """
    check_adoptable(tree)
    meta = tree.update(tree.paths.meta, Meta, lambda now: _raised(tree, now, greatest_token))
    for partition, checkpoint in (checkpoints or {}).items():
        path = tree.paths.checkpoint(partition)
        if checkpoint is not None:
            tree.put(path, checkpoint)
        else:
            remove_node(tree, path)  # there was none, or another adoption removed it
    if gone := set(pipelines) - tree.pipelines().keys():
        for partition in checkpoints or {}:
            if pipeline_of(partition) in gone:
                remove_node(tree, tree.paths.checkpoint(partition))
    return meta


def check_adoptable(tree: GroupState) -> None:
    """Raises ConfigError while a run is alive, or where a record cannot be read."""
    check_readable(tree, "adopt")
    if runs := sorted(parse_run(name)[1] for name in tree.working()):
        raise ConfigError(
            f"still alive: {counted(len(runs), 'run')} of group {tree.group!r}, the first is {runs[0]}. "
            f"Stop them (or the daemon), then adopt"
        )


def _raised(tree: GroupState, now: Meta | None, greatest_token: int) -> Meta:
    now = now or tree.meta()  # which reports that there is no such group
    if now.token_base > greatest_token:
        return now
    return now.model_copy(update={"token_base": greatest_token + 1})
