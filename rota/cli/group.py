"""What commands share: the options `--group` and `--json`, and the connection to a group.

Law: if ZooKeeper, a group, a worker or a partition is missing, a command reports it in one line with the known names.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rota.cli.view import show_wait
from rota.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from rota.catalog import Catalog
    from rota.coordination.group_state import GroupState


class _Refusing(MetaPathFinder):
    """Hides pandas, which pyarrow imports with its first value: that takes 0.3 s of a command."""

    def find_spec(self, name: str, _: object, __: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this command", name=name)


NO_PANDAS = _Refusing()
F = TypeVar("F", bound=Callable[..., Any])


def group_option(command: F) -> F:
    """Add `--group`, with the default `default`."""
    return click.option("--group", default="default", show_default=True, help="The group of workers.")(command)


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


@contextmanager
def open_group(group: str) -> "Iterator[GroupState]":
    """Open an existing group. Raises ConfigError, which names the known groups, and Unavailable without ZooKeeper."""
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
                f"Found it with `rota found --group {group}`, or start everything with `rota up`"
            )
        yield tree


def check_place(file: "Path | None") -> None:
    """Raise ConfigError, before the work, if the folder of an output file does not exist."""
    if file is not None and not file.parent.is_dir():
        raise ConfigError(f"{file.parent} is not a folder. Create it, or name another file")


def load_catalog() -> "Catalog":
    """Load the pipelines of ROTA_PIPELINES. Raises ConfigError."""
    from rota.catalog import load
    from rota.settings import Settings

    folder = Settings.from_environment().pipelines
    with show_wait(f"loading the pipelines in {folder}"):
        if spared := NO_PANDAS in sys.meta_path:
            sys.meta_path.remove(NO_PANDAS)  # a file may import it
        try:
            return load(folder)
        finally:
            if spared:
                sys.meta_path.insert(0, NO_PANDAS)
