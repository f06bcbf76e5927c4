"""What commands share: the options `--group` and `--json`, and the connection to a group.

Law: if ZooKeeper, a group, a worker or a partition is missing, a command says so in one line with the known names.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rota.errors import ConfigError, RotaError

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.pipeline import Catalog

F = TypeVar("F", bound=Callable[..., Any])


def group_option(command: F) -> F:
    """Adds `--group`, which is `default` if it is not given."""
    return click.option("--group", default="default", show_default=True, help="The group of workers.")(command)


def json_option(command: F) -> F:
    """Adds `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


@contextmanager
def open_group(group: str) -> "Iterator[GroupState]":
    """Opens an existing group. Raises ConfigError, which names the known groups, and Unavailable without ZooKeeper."""
    from rota.coordination import client
    from rota.coordination.group_state import GroupState, groups
    from rota.ids import checked_id
    from rota.settings import Settings

    settings = Settings.from_environment()
    with client.opened(settings) as store:
        tree = GroupState(store, checked_id("group", group))
        if not tree.there():
            raise ConfigError(
                f"No group {group!r} in ZooKeeper at {settings.zookeeper}. Known: {', '.join(groups(store)) or 'none'}. "
                f"Start a worker of it with `rota worker --group {group}`, or everything with `rota up`"
            )
        yield tree


def load_catalog() -> "Catalog":
    """Loads the pipelines of ROTA_PIPELINES. Raises ConfigError."""
    from rota.pipeline import load
    from rota.settings import Settings

    return load(Settings.from_environment().pipelines)


def read_lags(tree: "GroupState") -> dict[str, int]:
    """Partition -> its lag in offsets. A pipeline whose source cannot be read here has no entries."""
    from rota import backlog
    from rota.registry import open_source

    found: dict[str, int] = {}
    with suppress(ConfigError):
        for pipeline in load_catalog().of_group(tree.group):
            record = tree.partitions().get(pipeline.name)
            ids = [pipeline.partition(key) for key in record.keys] if record else []
            with suppress(RotaError):
                behind = backlog.lags(tree, open_source(pipeline), ids)
                found.update({p: latest - offset for p, (offset, latest) in behind.items()})
    return found


def find_rewritten(tree: "GroupState", partition: str) -> str | None:
    """Which files of the partition changed after they were consumed; None if none did or its source cannot be read here."""
    from rota import rewritten
    from rota.registry import open_ports

    with suppress(RotaError):
        for pipeline in load_catalog().of_group(tree.group):
            if tree.ids().get(partition) == pipeline.name:
                ports = open_ports(pipeline, tree.group, tree.meta().id)
                return rewritten.rewritten(ports.source, ports.main.read_log(), partition, most=None).get(partition)
    return None
