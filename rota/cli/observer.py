"""One observation of a group for commands: its needs, and what `rota status` lists beside them.

Law: `status`, `why`, `check` and `up` use this module, so all of them report the same needs.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli import view
from rota.cli.dagster_health import read_dagster
from rota.cli.group import load_catalog
from rota.errors import ConfigError, RotaError
from rota.face.dagster_state import DagsterSeen
from rota.face.memory import Memory
from rota.face.need import Need
from rota.face.needs import find_needs
from rota.face.seen import Seen
from rota.ids import pipeline_of
from rota.local.page import DagsterPage
from rota.settings import Settings

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.pipeline import Pipeline

CACHED_FOR = 5.0  # seconds for which an answer of Dagster is reused
HEALING = 100.0  # seconds: the longest wait for a need that may heal
POLL_INTERVAL = 1.0  # seconds between two observations


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of one observation. `bad` is partition -> its rows in the quarantine, from the newest commits."""

    seen: Seen
    needs: tuple[Need, ...]
    bad: Mapping[str, int]

    @property
    def ends(self) -> dict[str, tuple[int, int]]:
        """Return partition -> its offset and its end offset."""
        return {p: at for one in self.seen.pipelines for p, at in one.ends.items()}

    @property
    def rewritten(self) -> dict[str, str]:
        """Return partition -> which of its files changed after they were consumed."""
        return {p: why for one in self.seen.pipelines for p, why in one.rewritten.items()}


@dataclass(slots=True)
class GroupObserver:
    """Observes one group repeatedly. It reads a pipeline file, or a table's log, again only if it changed."""

    tree: "GroupState"
    memory: Memory = field(default_factory=Memory)
    _stamps: object = None
    _pipelines: "tuple[Pipeline, ...]" = ()
    _refused: Mapping[str, str] = field(default_factory=dict)
    _declared: frozenset[str] | None = None  # None: unknown
    _reader: object = None
    _asked: tuple[float, DagsterSeen] | None = None

    @property
    def pipelines(self) -> "tuple[Pipeline, ...]":
        """Return the pipelines of the group, as the last observation loaded them."""
        return self._pipelines

    def observe(self) -> Findings:
        """Observe the group once.

        Raises:
            RotaError: the group itself cannot be read.
        """
        from rota.face.health import HealthReader

        self._load()
        if not isinstance(self._reader, HealthReader):
            self._reader = HealthReader()
        read, bad = self._reader.read(self.tree, self._pipelines)
        known = {pipeline_of(p) for p in read.facts.partitions}
        undeclared = () if self._declared is None else tuple(sorted(known - self._declared))
        seen = replace(read, refused=self._refused, undeclared=undeclared, dagster=self._ask_dagster(undeclared))
        needs, self.memory = find_needs(seen, self.memory)
        return Findings(seen, needs, bad)

    def observe_until_sure(self, shown: Callable[[Need], bool] = lambda _: True) -> Findings:
        """Observe until a reported need needs an operator, or none can need one within `HEALING` seconds.

        The age of a need with a longer patience comes from stored times, so the first observation decides.
        """
        end, found = time.monotonic() + HEALING, self.observe()
        while True:
            mine = [need for need in found.needs if shown(need)]
            left = end - time.monotonic()
            if any(n.person for n in mine) or not any(n.due - found.seen.now <= left for n in mine):
                return found
            with view.show_wait(f"waiting, because this may heal: {mine[0].line}"):
                time.sleep(POLL_INTERVAL)
            found = self.observe()

    def _load(self) -> None:
        """Load the pipelines if a file has changed."""
        from rota.catalog import read_stamps

        folder = Settings.from_environment().pipelines
        try:
            if (stamps := read_stamps(folder)) != self._stamps or not stamps:
                catalog = load_catalog()
                self._pipelines, self._refused = catalog.of_group(self.tree.group), catalog.unserved
                files = (Path(file).stem for file in catalog.refused)
                self._declared = frozenset((*files, *(pipeline.name for pipeline in self._pipelines)))
                self._stamps, self._reader = stamps, None
        except ConfigError as error:
            self._pipelines, self._refused, self._stamps = (), {str(folder): str(error)}, None
            self._declared = None

    def _ask_dagster(self, undeclared: Sequence[str]) -> DagsterSeen:
        if self._asked is None or time.monotonic() - self._asked[0] >= CACHED_FOR:
            settings = Settings.from_environment()
            page = DagsterPage(settings.dagster, settings.location)
            names = [*(pipeline.name for pipeline in self._pipelines), *undeclared]
            self._asked = time.monotonic(), read_dagster(page, names, [self.tree.group])
        return self._asked[1]


def concerns(need: Need, pipeline: str | None = None, partition: str | None = None) -> bool:
    """Return whether the need concerns the pipeline, or the partition: its own need, or its group's."""
    if need.kind == "partition":
        return partition in (None, need.name) and pipeline in (None, pipeline_of(need.name))
    if need.kind == "pipeline":
        of = pipeline if partition is None else pipeline_of(partition)
        return of in (None, need.name)
    return True


def find_rewritten(tree: "GroupState", partition: str) -> str | None:
    """Check all files of the partition. Return which of them changed after they were consumed; None if none did, or the
    source cannot be read here.
    """
    with suppress(RotaError):
        pipelines = load_catalog().of_group(tree.group)
        from rota.registry import open_source, open_tables
        from rota.run.rewritten import explain_rewritten

        for pipeline in (one for one in pipelines if one.name == pipeline_of(partition)):
            past = open_tables(pipeline, tree.group, tree.meta().id).main.read_log()
            return explain_rewritten(open_source(pipeline), past, partition, most=None).get(partition)
    return None
