"""Which of two colliding pipeline files is served: the one that runs already. The other one is refused.

Laws:
1. The elder is the pipeline whose partitions its group has known for longer. A pipeline without partitions is a
   newcomer. So is a file that only declares groups, unless ZooKeeper has exactly its settings. Of two newcomers the
   first by name is served.
2. ZooKeeper is read once, and only if files collide. If it does not answer, the first by name is served.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from rota.errors import RotaError
from rota.pipeline import Group, Pipeline
from rota.settings import Settings

if TYPE_CHECKING:
    from rota.coordination.records import Meta
    from rota.coordination.store import Store

Declared = tuple[Pipeline | Group, ...]  # what one file declares


def open_store() -> "AbstractContextManager[Store]":
    """Return ZooKeeper as the environment names it. Raises RotaError."""
    from rota.coordination.client import opened

    return opened(Settings.from_environment())


class Ages:
    """How long the groups have known these pipelines; see the laws of the module."""

    def __init__(
        self, declared: Iterable[Pipeline | Group], ask: "Callable[[], AbstractContextManager[Store]]" = open_store
    ) -> None:
        self._declared, self._ask = tuple(declared), ask

    @cached_property
    def known(self) -> "tuple[dict[str, int], dict[str, Meta], str]":
        """Return pipeline -> the zxid since which its partitions are known; group -> its settings; why both are
        unknown.
        """
        from rota.coordination.group_reader import GroupReader
        from rota.coordination.records import Meta

        since: dict[str, int] = {}
        settings: dict[str, Meta] = {}
        try:
            with self._ask() as store:
                for one in self._declared:
                    tree = GroupReader(store, one.name if isinstance(one, Group) else one.group)
                    if isinstance(one, Group):
                        if seen := tree.read(tree.paths.meta, Meta):
                            settings[one.name] = seen.record
                    elif node := store.get(tree.paths.pipeline(one.name)):
                        since[one.name] = node.czxid
        except RotaError as error:
            return {}, {}, f" (which of them runs is unknown: {error})"
        return since, settings, ""

    def knows(self, declared: Declared) -> bool:
        """Return whether the group knows the pipeline of a file with these declarations."""
        return any(one.name in self.known[0] for one in declared if isinstance(one, Pipeline))

    def rank(self, pipeline: str) -> tuple[float, str]:
        """Return a sort key for pipelines: the eldest first."""
        return self.known[0].get(pipeline, inf), pipeline

    def rank_file(self, name: str, declared: Declared) -> tuple[float, str]:
        """Return a sort key for files: the eldest first."""
        if mine := [one.name for one in declared if isinstance(one, Pipeline)]:
            return self.known[0].get(mine[0], inf), name
        return (-inf if all(self._is_in_force(one) for one in declared if isinstance(one, Group)) else inf), name

    def _is_in_force(self, group: Group) -> bool:
        meta = self.known[1].get(group.name)
        fields = ("protocol", "assignor", "options", "budget", "cooldown", "grace")
        return meta is not None and all(getattr(meta, name) == getattr(group, name) for name in fields)

    @property
    def doubt(self) -> str:
        """Return why the elder is unknown; empty if it is known."""
        return self.known[2]
