"""After a lost or restored ZooKeeper, or a restored table: what `rota adopt` changes here, so that tokens only grow.

Laws:
1. After it, every token of this group is above every token that the tables have seen.
2. A checkpoint that was ahead of its table is set to what the table says, or removed where the table never heard of the
   partition; only here may a checkpoint go back.
3. It changes nothing while a run is alive: nobody may commit under a token that is being outgrown.
4. It begins only where every record can be read: `rota repair` comes first.

What tells that it is needed, and what a table carries, is the data plane's: a meta id that is not this group's, a token
above that of a current own record, a checkpoint ahead of its table.
"""

from collections.abc import Mapping

from rota.coordination.group_state import GroupState
from rota.coordination.membership import remove_node
from rota.coordination.records import Checkpoint, Meta
from rota.coordination.repair import check_readable
from rota.errors import ConfigError, counted
from rota.ids import parse_run


def adopt(tree: GroupState, greatest_token: int, checkpoints: Mapping[str, Checkpoint | None] | None = None) -> Meta:
    """Raises the token base above `greatest_token`, the greatest that any of the group's tables holds, and sets the
    given checkpoints to what their tables say (None: nothing). The settings as they are then. Raises ConfigError while
    runs are alive."""
    check_adoptable(tree)
    meta = tree.update(tree.paths.meta, Meta, lambda now: _raised(tree, now, greatest_token))
    for partition, checkpoint in (checkpoints or {}).items():
        path = tree.paths.checkpoint(partition)
        if checkpoint is not None:
            tree.put(path, checkpoint)
        else:
            remove_node(tree, path)  # there was none, or another adoption removed it
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
    now = now or tree.meta()  # which says that there is no such group
    if now.token_base > greatest_token:
        return now
    return now.model_copy(update={"token_base": greatest_token + 1})
