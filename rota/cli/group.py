"""The group that a command reads or changes: its options, and the connection behind them.

Law: a command says what is missing (ZooKeeper, group, worker, partition) in one line with the names there are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rota.errors import ConfigError, RotaError

if TYPE_CHECKING:
    from rota.coordination.tree import Tree
    from rota.pipeline import Catalog

F = TypeVar("F", bound=Callable[..., Any])


def group_option(command: F) -> F:
    """`--group`, `default` unless given."""
    return click.option("--group", default="default", show_default=True, help="The group of workers.")(command)


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


@contextmanager
def opened(group: str) -> "Iterator[Tree]":
    """The tree of a group that is there. Raises ConfigError with the groups there are, Unavailable without ZooKeeper."""
    from rota.coordination import client
    from rota.coordination.tree import Tree, groups
    from rota.ids import checked_id
    from rota.settings import Settings

    settings = Settings.from_environment()
    with client.opened(settings) as store:
        tree = Tree(store, checked_id("group", group))
        if not tree.there():
            raise ConfigError(
                f"No group {group!r} in ZooKeeper at {settings.zookeeper}. Known: {', '.join(groups(store)) or 'none'}. "
                f"Start a worker of it with `rota worker --group {group}`, or everything with `rota up`"
            )
        yield tree


def catalog() -> "Catalog":
    """The pipelines of ROTA_PIPELINES."""
    from rota.pipeline import load
    from rota.settings import Settings

    return load(Settings.from_environment().pipelines)


def lags(tree: "Tree") -> dict[str, int]:
    """Partition -> how many offsets are unread; nothing of a pipeline whose source cannot be seen from here."""
    from rota import backlog
    from rota.registry import open_source

    found: dict[str, int] = {}
    with suppress(ConfigError):
        for pipeline in catalog().of_group(tree.group):
            record = tree.partitions().get(pipeline.name)
            ids = [pipeline.partition(key) for key in record.keys] if record else []
            with suppress(RotaError):
                behind = backlog.lags(tree, open_source(pipeline), ids)
                found.update({p: latest - offset for p, (offset, latest) in behind.items()})
    return found


def rewritten(tree: "Tree", partition: str) -> str | None:
    """What changed in its landing folder after it was consumed; None also where its source cannot be seen from here."""
    from rota import rewritten
    from rota.registry import open_ports

    with suppress(RotaError):
        for pipeline in catalog().of_group(tree.group):
            if tree.ids().get(partition) == pipeline.name:
                ports = open_ports(pipeline, tree.group, tree.meta().id)
                return rewritten.rewritten(ports.source, ports.main.read_log(), partition, most=None).get(partition)
    return None
