"""Which of two pipeline files that collide stays: what runs goes on, and the newcomer is refused.

Laws:
1. The elder is whose partitions its group has known for longer. A pipeline without partitions is a newcomer; so is a file
   that only declares groups, unless one of them has just these settings. Of two newcomers the first by name stays.
2. ZooKeeper is asked once, and only where files collide. Where it does not answer, the first by name stays.
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
    """ZooKeeper as the environment names it. Raises RotaError."""
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
        """Pipeline -> since which zxid its partitions are known; group -> its settings; why nobody can tell."""
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
            return {}, {}, f" (nobody can tell which of them runs: {error})"
        return since, settings, ""

    def knows(self, declared: Declared) -> bool:
        """Whether the pipeline of a file that declares this is no newcomer."""
        return any(one.name in self.known[0] for one in declared if isinstance(one, Pipeline))

    def rank(self, pipeline: str) -> tuple[float, str]:
        """What orders pipelines, the eldest first."""
        return self.known[0].get(pipeline, inf), pipeline

    def rank_file(self, name: str, declared: Declared) -> tuple[float, str]:
        """What orders files, the eldest first."""
        if mine := [one.name for one in declared if isinstance(one, Pipeline)]:
            return self.known[0].get(mine[0], inf), name
        return (-inf if all(self._is_in_force(one) for one in declared if isinstance(one, Group)) else inf), name

    def _is_in_force(self, group: Group) -> bool:
        meta = self.known[1].get(group.name)
        fields = ("protocol", "assignor", "options", "budget", "cooldown", "grace")
        return meta is not None and all(getattr(meta, name) == getattr(group, name) for name in fields)

    @property
    def doubt(self) -> str:
        """Why it is not known who is the elder; empty where it is."""
        return self.known[2]
