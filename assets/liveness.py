"""The liveness znode of a run, by which the sensors detect its death: it ends with the run's session. A guard ends the
session as soon as the run's process is dead.

Invariants: the run sets its tag after it made the znode, and clears the tag before it removes the znode. So a run with the
tag and without the znode is dead, frozen or cut off, even if a process listens at its address. The tag contains the run's
id, because Dagster copies tags to a retry.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg

from rota.dagster.assets.names import LIVENESS_TAG
from rota.dagster.resources.zookeeper import ZooKeeperResource

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState


def make_liveness_tag(group: str, run_id: str) -> str:
    """Return the tag of a run that has a liveness znode in this group."""
    return f"{group}/{run_id}"


@contextmanager
def prove_liveness(
    context: dg.AssetExecutionContext, zookeeper: ZooKeeperResource, group: str
) -> "Iterator[GroupState]":
    """Yield the records of the group; the block runs with the run's liveness znode. Raises Unavailable."""
    from rota.coordination.membership import create_liveness_node

    run_id = context.run.run_id
    with zookeeper.tree(group, is_guarded=True) as tree:
        create_liveness_node(tree, run_id)
        context.instance.add_run_tags(run_id, {LIVENESS_TAG: make_liveness_tag(group, run_id)})
        try:
            yield tree
        finally:
            context.instance.add_run_tags(run_id, {LIVENESS_TAG: ""})
