"""What the sources and the tables of a group say, for `rota status` and `rota why`."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.cli.group import load_catalog
from rota.cli.standin import keep_out
from rota.errors import ConfigError, RotaError

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.dataplane.ports import LogEntry, Source
    from rota.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Recent:
    """What sources and tables say, by partition: its lag in offsets, its rows that are in the quarantine, which of its files
    changed after they were consumed. Of the tables the newest commits were read."""

    lags: Mapping[str, int]
    quarantined: Mapping[str, int]
    rewritten: Mapping[str, str]


class RecentReader:
    """Reads them, as often as it is asked. Law: what did not change is not read again: a pipeline file, and a table's log;
    folders and consumed files are looked at each time. What cannot be read here has no entries."""

    def __init__(self) -> None:
        self._stamps: Mapping[str, object] = {}
        self._pipelines: tuple[Pipeline, ...] = ()
        self._logs: dict[str, tuple[object, tuple[LogEntry, ...]]] = {}

    def read(self, tree: "GroupState") -> Recent:
        """What they say now."""
        pipelines = self._list_pipelines(tree.group)
        from rota import rewritten
        from rota.registry import open_source

        lags: dict[str, int] = {}
        bad: Counter[str] = Counter()
        changed: dict[str, str] = {}
        for pipeline in pipelines:
            with suppress(RotaError):
                source = open_source(pipeline)
                lags.update(read_lags(tree, pipeline, source))
                past = self._read_log(tree, pipeline)
                for entry in past:
                    bad.update(entry.bad)
                changed.update(rewritten.explain_rewritten(source, past))
        return Recent(lags, bad, changed)

    def _list_pipelines(self, group: str) -> "tuple[Pipeline, ...]":
        from rota.catalog import read_stamps
        from rota.settings import Settings

        folder = Settings.from_environment().pipelines
        with suppress(ConfigError):
            if (stamps := read_stamps(folder)) != self._stamps or not stamps:
                self._pipelines, self._stamps, self._logs = load_catalog().of_group(group), stamps, {}
            keep_out()
            return self._pipelines
        return ()

    def _read_log(self, tree: "GroupState", pipeline: "Pipeline") -> "tuple[LogEntry, ...]":
        from rota.registry import open_tables

        main = open_tables(pipeline, tree.group, tree.meta().id).main
        stamp = main.read_stamp()
        known, past = self._logs.get(pipeline.name, (None, ()))
        if known != stamp or stamp is None:
            past = main.read_recent_log()
            self._logs[pipeline.name] = stamp, past
        return past


def read_lags(tree: "GroupState", pipeline: "Pipeline", source: "Source") -> dict[str, int]:
    """Partition -> its lag in offsets. Raises RotaError."""
    from rota import backlog

    record = tree.partitions().get(pipeline.name)
    behind = backlog.read_lags(tree, source, [pipeline.partition(key) for key in record.keys] if record else [])
    return {p: latest - offset for p, (offset, latest) in behind.items()}


def read_source_of(tree: "GroupState", partition: str) -> tuple[int | None, str | None]:
    """The partition's lag in offsets, and which of its files changed after they were consumed, all of them looked at. None
    where its source cannot be read here, and None where no file changed."""
    lag = changed = None
    with suppress(RotaError):
        pipelines = load_catalog().of_group(tree.group)
        keep_out()
        from rota import rewritten
        from rota.registry import open_source, open_tables

        for pipeline in pipelines:
            if tree.ids().get(partition) == pipeline.name:
                source = open_source(pipeline)
                lag = read_lags(tree, pipeline, source).get(partition)
                past = open_tables(pipeline, tree.group, tree.meta().id).main.read_log()
                changed = rewritten.explain_rewritten(source, past, partition, most=None).get(partition)
    return lag, changed
