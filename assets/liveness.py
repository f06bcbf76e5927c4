"""How the sensors see that a run is alive: by a node in ZooKeeper that ends with the session of the run. A guard ends the
session as soon as the run's process is dead.

Invariants: the run sets its tag after it made the node, and clears the tag before it removes the node. So a run with the tag
and without the node is dead, frozen or cut off, whatever answers at its address. The tag names the run itself, because
Dagster copies tags to a retry.
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
    """The tag of a run that has a node in this group."""
    return f"{group}/{run_id}"


@contextmanager
def prove_liveness(
    context: dg.AssetExecutionContext, zookeeper: ZooKeeperResource, group: str
) -> "Iterator[GroupState]":
    """Give the records of the group, while the node of the run is there. Raises Unavailable."""
    from rota.coordination.membership import create_liveness_node

    run_id = context.run.run_id
    with zookeeper.tree(group, is_guarded=True) as tree:
        create_liveness_node(tree, run_id)
        context.instance.add_run_tags(run_id, {LIVENESS_TAG: make_liveness_tag(group, run_id)})
        try:
            yield tree
        finally:
            context.instance.add_run_tags(run_id, {LIVENESS_TAG: ""})
