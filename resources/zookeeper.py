"""ZooKeeper as Dagster connects to it: one session a tick or run, closed at its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg

from rota.errors import RotaError
from rota.settings import Settings

if TYPE_CHECKING:
    from rota.coordination.store import Store
    from rota.coordination.tree import Tree


class ZooKeeperResource(dg.ConfigurableResource):
    """Laws: an outage raises, so that a tick fails with one line; it never reads as "no workers". An expected error leaves
    alone: what it was made from (of Spark, of the file system) names paths in full, and Dagster would write all of it down.

    `hosts` left empty means ROTA_ZOOKEEPER, read when it is used: definitions load with no ZooKeeper there.
    """

    hosts: str = ""

    @contextmanager
    def store(self) -> "Iterator[Store]":
        """A connected store; raises Unavailable with the next step."""
        from rota.coordination.client import opened

        try:
            with opened(Settings.from_environment(), self.hosts or None) as store:
                yield store
        except RotaError as error:
            error.__cause__ = error.__context__ = None
            raise

    @contextmanager
    def tree(self, group: str) -> "Iterator[Tree]":
        """The group's records on a store of its own."""
        from rota.coordination.tree import Tree

        with self.store() as store:
            yield Tree(store, group)
