"""The connection to ZooKeeper: each tick and each run has one session, which is closed at its end."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from rota.dagster.resources.location import LocationResource
from rota.errors import RotaError, hide
from rota.settings import Settings

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.coordination.store import Store

FIELDS = ("auth", "acl", "ca_file", "cert_file", "key_file", "key_password")


class ZooKeeperResource(LocationResource):
    """The connection to ZooKeeper.

    Each field is the setting ROTA_ZOOKEEPER or ROTA_ZOOKEEPER_<field>. An empty field is read from the environment at
    the first use, so definitions load without ZooKeeper. Give `auth` and `key_password` as `dg.EnvVar`; else Dagster
    shows their values.

    Laws: an outage raises, so that a tick fails with one line; it never counts as "no workers". An expected error is
    raised without its cause, which may contain paths and which Dagster would store.
    """

    hosts: str = ""
    auth: str = ""
    acl: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    key_password: str = ""

    @contextmanager
    def store(self, is_guarded: bool = False) -> "Iterator[Store]":
        """Yield a connected store. If `is_guarded`, its session ends as soon as this process is dead. Raises Unavailable."""
        from rota.coordination.client import opened
        from rota.coordination.guarded import guarded

        try:
            with (
                guarded() if is_guarded else nullcontext() as guard,
                opened(self.read_settings(), guard=guard) as store,
            ):
                yield store
        except RotaError as error:
            error.__cause__ = error.__context__ = None
            raise

    def read_settings(self) -> Settings:
        """Return the environment's settings, overridden by the fields. Raises ConfigError."""
        for secret in (self.auth, self.key_password):
            hide(secret)
        mine = {f"zookeeper_{name}": getattr(self, name) for name in FIELDS} | {"zookeeper": self.hosts}
        return replace(Settings.from_environment(), **{name: value for name, value in mine.items() if value})

    @contextmanager
    def tree(self, group: str, is_guarded: bool = False) -> "Iterator[GroupState]":
        """Yield the group's records, over a store of their own; see `store`. Raises Unavailable."""
        from rota.coordination.group_state import GroupState

        with self.store(is_guarded) as store:
            yield GroupState(store, group)
