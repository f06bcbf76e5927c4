"""ZooKeeper for ticks and runs: one session for each, closed at its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg

from rota.errors import RotaError
from rota.settings import Settings

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.coordination.store import Store


class ZooKeeperResource(dg.ConfigurableResource[Any]):
    """Laws: an outage raises, so that a tick fails with one line; it is never taken for "no workers". An expected error is
    raised without its cause, which may name paths and which Dagster would store.

    An empty `hosts` means ROTA_ZOOKEEPER, which is read at the first use: definitions load without ZooKeeper.
    """

    hosts: str = ""

    @contextmanager
    def store(self) -> "Iterator[Store]":
        """A connected store. Raises Unavailable."""
        from rota.coordination.client import opened

        try:
            with opened(Settings.from_environment(), self.hosts or None) as store:
                yield store
        except RotaError as error:
            error.__cause__ = error.__context__ = None
            raise

    @contextmanager
    def tree(self, group: str) -> "Iterator[GroupState]":
        """The group's records, over a store of their own. Raises Unavailable."""
        from rota.coordination.group_state import GroupState

        with self.store() as store:
            yield GroupState(store, group)
