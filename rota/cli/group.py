"""What commands share: the options `--group` and `--json`, and the connection to a group.

Law: if ZooKeeper, a group, a worker or a partition is missing, a command says so in one line with the known names.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rota.cli.view import show_wait
from rota.errors import ConfigError, RotaError

if TYPE_CHECKING:
    from rota.catalog import Catalog
    from rota.coordination.group_state import GroupState
    from rota.dataplane.ports import Source
    from rota.pipeline import Pipeline

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
    from rota.coordination.group_reader import groups
    from rota.coordination.group_state import GroupState
    from rota.ids import checked_id
    from rota.settings import Settings

    settings = Settings.from_environment()
    with show_wait(f"waiting for ZooKeeper at {settings.zookeeper}"):
        store = client.opened(settings)
    with store:
        tree = GroupState(store, checked_id("group", group))
        if not tree.exists():
            raise ConfigError(
                f"No group {group!r} in ZooKeeper at {settings.zookeeper}. Known: {', '.join(groups(store)) or 'none'}. "
                f"Start a worker of it with `rota worker --group {group}`, or everything with `rota up`"
            )
        yield tree


def load_catalog() -> "Catalog":
    """Loads the pipelines of ROTA_PIPELINES. Raises ConfigError."""
    from rota.catalog import load
    from rota.settings import Settings

    return load(Settings.from_environment().pipelines)


@dataclass(frozen=True, slots=True)
class Recent:
    """What sources and tables say, by partition: its lag in offsets, its rows that are in the quarantine, which of its files
    changed after they were consumed. Of the tables the newest commits were read."""

    lags: Mapping[str, int]
    quarantined: Mapping[str, int]
    rewritten: Mapping[str, str]


def read_recent(tree: "GroupState") -> Recent:
    """Reads the sources and the tables of the group. What cannot be read here has no entries."""
    from rota import rewritten
    from rota.registry import open_source, open_tables

    lags: dict[str, int] = {}
    bad: Counter[str] = Counter()
    changed: dict[str, str] = {}
    with suppress(ConfigError):
        for pipeline in load_catalog().of_group(tree.group):
            with suppress(RotaError):
                source = open_source(pipeline)
                lags.update(read_lags(tree, pipeline, source))
                past = open_tables(pipeline, tree.group, tree.meta().id).main.read_recent_log()
                for entry in past:
                    bad.update(entry.bad)
                changed.update(rewritten.explain_rewritten(source, past))
    return Recent(lags, bad, changed)


def read_lags(tree: "GroupState", pipeline: "Pipeline", source: "Source") -> dict[str, int]:
    """Partition -> its lag in offsets. Raises RotaError."""
    from rota import backlog

    record = tree.partitions().get(pipeline.name)
    behind = backlog.read_lags(tree, source, [pipeline.partition(key) for key in record.keys] if record else [])
    return {p: latest - offset for p, (offset, latest) in behind.items()}


def read_source_of(tree: "GroupState", partition: str) -> tuple[int | None, str | None]:
    """The partition's lag in offsets, and which of its files changed after they were consumed, all of them looked at. None
    where its source cannot be read here, and None where no file changed."""
    from rota import rewritten
    from rota.registry import open_source, open_tables

    lag = changed = None
    with suppress(RotaError):
        for pipeline in load_catalog().of_group(tree.group):
            if tree.ids().get(partition) == pipeline.name:
                source = open_source(pipeline)
                lag = read_lags(tree, pipeline, source).get(partition)
                past = open_tables(pipeline, tree.group, tree.meta().id).main.read_log()
                changed = rewritten.explain_rewritten(source, past, partition, most=None).get(partition)
    return lag, changed
