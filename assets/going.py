"""How a run lets the sensors know that it goes on: a node in ZooKeeper that ends with its session.

Laws: the run's tag says that there is a node, after it was made and until before it is taken away. So a run whose tag says
so and that has no node is dead, frozen or cut off, whoever launched it and whatever answers at its address. The tag names
the run itself: Dagster copies tags to a run that tries again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg

from rota.dagster.assets.names import GOING
from rota.dagster.resources.zookeeper import ZooKeeperResource

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState


def make_going_tag(group: str, run_id: str) -> str:
    """What the tag of a run says that has a node in this group."""
    return f"{group}/{run_id}"


@contextmanager
def going_on(context: dg.AssetExecutionContext, zookeeper: ZooKeeperResource, group: str) -> "Iterator[GroupState]":
    """The group's records, while the run is known to go on. Raises Unavailable."""
    from rota.coordination.membership import show_going

    run_id = context.run.run_id
    with zookeeper.tree(group) as tree:
        show_going(tree, run_id)
        context.instance.add_run_tags(run_id, {GOING: make_going_tag(group, run_id)})
        try:
            yield tree
        finally:
            context.instance.add_run_tags(run_id, {GOING: ""})
