"""`rota check`: shows every setting and tries Java, ZooKeeper, the pipelines, Spark, tables and sources."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from rota import errors
from rota.cli import view
from rota.cli.shown_settings import list_settings
from rota.errors import ConfigError, RotaError
from rota.ids import pipeline_of

if TYPE_CHECKING:
    from rota.catalog import Catalog
    from rota.coordination.client import ZooKeeperStore
    from rota.coordination.group_state import GroupState
    from rota.dataplane.spark.session import SparkSession
    from rota.face.need import Need
    from rota.pipeline import Pipeline
    from rota.settings import Settings

PROBED = {  # cause of a need -> the probes that report it as well
    "spark": "Spark of ",
    "record": "record ",
    "rewritten": "files of ",
    "refused": "pipeline file ",
    "source": "source of ",
    "table": "table of ",
}
QUOTED = 5  # partitions that one probe names
SKEW = 1.0  # seconds by which two clocks may differ


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of one trial: whether the part works, what was observed, and the next step if it does not work."""

    name: str
    works: bool
    seen: str
    fix: str = ""


@click.command("check")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> None:
    """Show every setting and try what it names.

    Tries Java, ZooKeeper, the pipelines, Spark, tables and sources. Exit code 2: one of them does not work.
    """
    from rota.local.folder import find_running
    from rota.settings import Settings

    settings = Settings.from_environment()
    with view.show_wait(f"loading the pipelines in {settings.pipelines} as Dagster does"):
        catalog, refused = _load_catalog(settings)
    found = list(list_settings(settings, catalog, os.environ, find_running(Path.cwd())))
    probes: list[Probe] = []
    if not as_json:
        view.print_parts(
            view.make_table("Settings", ["name", "value", "origin"], [(s.name, s.value, s.origin) for s in found]), ""
        )
    trying = _run_probes(settings, catalog, refused)
    while tried := _try_next(trying):
        probe = replace(tried, seen=errors.mask(tried.seen))  # a filled-in path may contain a secret
        probes.append(probe)
        if not as_json:
            _print_probe(probe)
    works = all(p.works for p in probes)
    if as_json:
        view.print_document(
            {"works": works, "settings": [asdict(s) for s in found], "probes": [asdict(p) for p in probes]}
        )
    sys.exit(0 if works else 2)


def _try_next(probes: Iterator[Probe]) -> Probe | None:
    """Return the next probe; None after the last."""
    with view.show_wait("trying what the settings name"):
        return next(probes, None)


def _print_probe(probe: Probe) -> None:
    head = f"{'ok ' if probe.works else 'NO '} {probe.name:<24}", "green" if probe.works else "red"
    seen = f" {probe.seen}" + (f". {probe.fix[0].upper()}{probe.fix[1:]}" if probe.fix and not probe.works else "")
    view.console.print(Text.assemble(head, seen), soft_wrap=True)


def _load_catalog(settings: "Settings") -> "tuple[Catalog | None, str]":
    from rota.catalog import load

    try:
        return load(settings.pipelines), ""
    except RotaError as error:
        return None, str(error)


def _run_probes(settings: "Settings", catalog: "Catalog | None", refused: str) -> Iterator[Probe]:
    """Try the parts, then report the needs of each group. The command prints a probe before the next one begins."""
    from rota.coordination.client import opened

    failed: list[str] = []
    with ExitStack() as until_end:
        store: ZooKeeperStore | RotaError
        try:
            store = until_end.enter_context(opened(settings))
        except RotaError as error:
            store = error
        for probe in probe_parts(settings, store, catalog, refused):
            failed += [] if probe.works else [probe.name]
            yield probe
        if not isinstance(store, RotaError):
            yield from _probe_needs(store, failed)


def probe_parts(
    settings: "Settings", store: "ZooKeeperStore | RotaError", catalog: "Catalog | None", refused: str
) -> Iterator[Probe]:
    """Try Java, ZooKeeper (`store`: the session, or why there is none) and its groups, and the parts of the pipelines."""
    yield _probe_java()
    sparks: dict[str, str] = {}  # group -> the Spark of one of its workers that answers
    yield from _probe_zookeeper(settings, store, sparks)
    if catalog is None:
        yield Probe("pipelines", False, refused)
        return
    names = ", ".join(catalog.pipelines) or "none"
    yield Probe("pipelines", bool(catalog.pipelines), f"{names} in {settings.pipelines}", "Add a file with a Pipeline")
    yield from _probe_files(settings, catalog)
    for pipeline in catalog.pipelines.values():
        yield _try(f"source of {pipeline.name}", partial(_check_source, pipeline), "Check its path and its rights")
        yield _try(f"table of {pipeline.name}", partial(_check_table, pipeline), "Check its path and its rights")
        if not _may_change(pipeline):
            continue
        yield _try(
            f"files of {pipeline.name}", partial(_check_files, pipeline), "Check the landing folder and its rights"
        )
        yield _try(
            f"clock of {pipeline.name}", partial(_check_clock, pipeline), "Check the table's path and its rights"
        )
    for group in sorted({pipeline.group for pipeline in catalog.pipelines.values()}):
        yield from _probe_schemas(catalog.of_group(group), sparks.get(group))


def _probe_files(settings: "Settings", catalog: "Catalog") -> Iterator[Probe]:
    """Yield each file that rota or Dagster does not serve completely."""
    from rota.face.unserved import find_unserved

    refused: dict[str, str] = {}
    try:
        refused = find_unserved(settings.pipelines)
    except RotaError as error:
        yield Probe("pipelines in Dagster", False, str(error))
    for file, why in {**catalog.unserved, **refused}.items():
        yield Probe(f"pipeline file {errors.printable(file)}", False, why)


def _try(name: str, what: Callable[[], str], fix: str) -> Probe:
    """Return the probe of one call: its result, or the expected error that it raised."""
    try:
        return Probe(name, True, what())
    except RotaError as error:
        return Probe(name, False, str(error))
    except OSError as error:
        return Probe(name, False, f"{type(error).__name__}: {error}", fix)


def _probe_java() -> Probe:
    from rota.dataplane.spark.spark_server import ARCHIVE
    from rota.java import find_java, locate_archive, read_java_version

    ready = locate_archive(ARCHIVE).exists()
    starts = "the archive of `rota prepare` is there" if ready else "`rota prepare` halves the start time of Spark"
    try:
        program = find_java()
    except RotaError as error:
        return Probe("Java", False, str(error))
    return Probe("Java", True, f"{program} is version {read_java_version(program)}; {starts}")


def _probe_zookeeper(
    settings: "Settings", store: "ZooKeeperStore | RotaError", sparks: dict[str, str]
) -> Iterator[Probe]:
    """Try the server, then each of its groups: the Spark of its live workers, and its records.

    `sparks` gets one Spark that answers for each group.
    """
    from rota.coordination.group_reader import groups
    from rota.coordination.group_state import GroupState

    try:
        if isinstance(store, RotaError):
            raise store
        there = groups(store)
        yield Probe("ZooKeeper", True, f"{settings.zookeeper} answers; groups: {', '.join(there) or 'none yet'}")
        yield from _probe_rights(store, settings)
        for group in there:
            yield from _probe_sparks(GroupState(store, group), sparks)
            yield from _probe_records(GroupState(store, group))
    except RotaError as error:
        yield Probe("ZooKeeper", False, str(error))


def _probe_rights(store: "ZooKeeperStore", settings: "Settings") -> Iterator[Probe]:
    """Yield each server that gives no session, and each right that differs from ROTA_ZOOKEEPER_ACL."""
    from rota.coordination.protect import exposed
    from rota.settings import split_hosts

    for place in split_hosts(settings.zookeeper)[0]:
        if why := store.access.unmet(place):
            yield Probe(f"ZooKeeper {place}", False, why, "The others serve; repair this one")
    if not store.access.roles:
        yield Probe("rights", True, "each client of ZooKeeper has all rights: ROTA_ZOOKEEPER_ACL is not set")
        return
    wrong = exposed(store)
    for what, paths in wrong.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield Probe("rights", False, f"{paths[0]}{more}: {what}", "As an operator: rota protect")
    if not wrong:
        yield Probe("rights", True, f"as ROTA_ZOOKEEPER_ACL requires; this is {store.access.me}")


def _probe_sparks(tree: "GroupState", sparks: dict[str, str]) -> Iterator[Probe]:
    for worker, one in sorted(tree.newest(tree.live()).items()):
        endpoint = one.record.endpoint if one.record else None
        if not endpoint:
            yield Probe(f"Spark of {worker}", True, "none of its own: its runs start a local session")
            continue
        yield (probe := _probe_spark(f"Spark of {worker}", endpoint))
        if probe.works:
            sparks.setdefault(tree.group, endpoint)


def _probe_records(tree: "GroupState") -> Iterator[Probe]:
    """Yield each record that cannot be read."""
    from rota.coordination.records import repair_command
    from rota.coordination.repair import find_unreadable

    for one in find_unreadable(tree):
        fix = f"Restore it, or see what removing it does: {repair_command(one.path)}"
        yield Probe(f"record {one.path}", False, one.why, fix)


def _probe_needs(store: "ZooKeeperStore", failed: Sequence[str]) -> Iterator[Probe]:
    """Yield each cause that needs an operator, as in `rota status`, except those that a failed probe reports already."""
    from rota.cli.observer import GroupObserver
    from rota.coordination.group_reader import groups
    from rota.coordination.group_state import GroupState
    from rota.face.need import join_needs

    def is_reported(need: "Need") -> bool:
        prefix = PROBED.get(need.cause)
        return prefix is not None and any(f"{prefix}{name}" in failed for name in (need.name, pipeline_of(need.name)))

    if "ZooKeeper" in failed:
        return
    try:
        for group in groups(store):
            needs = [need for need in GroupObserver(GroupState(store, group)).observe_until_sure().needs if need.person]
            left = join_needs(need for need in needs if not is_reported(need))
            yield from (Probe(one.title, False, one.line) for one in left)
            if not left:
                yield Probe(f"needs of {group}", True, "none except those in the other lines")
    except RotaError as error:
        yield Probe("needs", False, str(error))


def _probe_spark(name: str, endpoint: str) -> Probe:
    """Try whether the Spark Connect server at `endpoint` answers, and whether its token is encrypted on the way."""
    from rota.dataplane.spark.probe import explain_silence
    from rota.dataplane.spark.token import sent_in_clear

    if why := explain_silence(endpoint, 5):
        return Probe(name, False, f"{endpoint}: {why}", "See the worker's log; the worker restarts its Spark")
    if sent_in_clear(endpoint):
        fix = "Put a TLS proxy in front of it, and start the worker with --spark 'sc://HOST:443/;use_ssl=true'"
        return Probe(name, False, f"{endpoint} answers without TLS: runs send ROTA_SPARK_TOKEN in clear", fix)
    return Probe(name, True, f"{endpoint} answers")


def _probe_schemas(pipelines: "Iterable[Pipeline]", endpoint: str | None) -> Iterator[Probe]:
    """Try whether Spark reads each pipeline's schema, and accepts its transform on a frame without rows."""
    if endpoint is None:
        not_tried = "not tried, nor is its transform: no live worker with a Spark"
        yield from (Probe(f"schema of {pipeline.name}", True, not_tried) for pipeline in pipelines)
        return
    from rota.dataplane.spark.session import join_session, keep_session

    with keep_session() as connect:
        for pipeline in pipelines:
            try:
                yield from _probe_schema(pipeline, join_session(connect, endpoint, pipeline.module), endpoint)
            except RotaError as error:
                yield Probe(f"schema of {pipeline.name}", False, str(error))


def _probe_schema(pipeline: "Pipeline", spark: "SparkSession", endpoint: str) -> Iterator[Probe]:
    from rota.dataplane.spark.transforming import find_refused
    from rota.registry import describe_frame, open_tables

    table = None
    with suppress(RotaError):  # the table has a probe of its own
        table = open_tables(pipeline, pipeline.group).main.read_schema()
    frame = describe_frame(pipeline)
    schema, transform = find_refused(spark, pipeline, frame or pipeline.source.schema, table)
    fix = f"Correct the schema in {pipeline.name}.py"
    yield Probe(f"schema of {pipeline.name}", not schema, schema or f"{endpoint} can read it", fix if schema else "")
    if not pipeline.transform or schema:
        return
    seen = transform or f"{endpoint} accepts it on a frame without rows"
    if frame is None:
        transform, seen = "", "not tried: new_columns='add' gives it columns that the schema does not name"
    fix = f"Correct the transform; then, with its data: rota try {pipeline.name}.py"
    yield Probe(f"transform of {pipeline.name}", not transform, seen, fix if transform else "")


def _check_source(pipeline: "Pipeline") -> str:
    from rota.dataplane.ports import INSPECT
    from rota.registry import open_source

    source = open_source(pipeline)
    seen = source.observe((), INSPECT)
    keys = source.list_keys()
    some = f": {' '.join(keys[:8])}{' ...' if len(keys) > 8 else ''}" if keys else ""
    unread = [f"{path} ({why})" for path, why in seen.ignored.items()]
    rest = f"; not read: {len(unread)}, such as {'; '.join(unread[:3])}" if unread else ""
    return f"{seen.place} has {errors.counted(len(keys), 'partition')}{some}{rest}"


def _may_change(pipeline: "Pipeline") -> bool:
    """Return whether users may change what was consumed; False if the source cannot be opened: another probe reports it."""
    from rota.dataplane.ports import HasFiles
    from rota.registry import open_source

    try:
        return isinstance(open_source(pipeline), HasFiles)
    except RotaError:
        return False


def _check_files(pipeline: "Pipeline") -> str:
    """Raise ConfigError, which names the files, if a file changed after it was consumed."""
    from rota.registry import open_ports
    from rota.run.rewritten import explain_rewritten

    ports = open_ports(pipeline, pipeline.group)
    if found := explain_rewritten(ports.source, ports.main.read_log(), most=None):
        named = "; ".join(f"{partition}: {why}" for partition, why in sorted(found.items())[:QUOTED])
        more = f"; and {errors.counted(len(found) - QUOTED, 'more partition')}" if len(found) > QUOTED else ""
        raise ConfigError(f"{named}{more}")
    return "no file changed after it was consumed"


def _check_clock(pipeline: "Pipeline") -> str:
    """Compare the clock of the disk with that of this machine, as `settle` does. Raise ConfigError if they differ."""
    from rota.settings import resolve_place
    from rota.stores import is_url

    where = resolve_place(pipeline.table.path)
    if is_url(where):
        return f"{where} is in a bucket, and rota does not use the times of a bucket"
    place = _find_writable(Path(where))
    with tempfile.NamedTemporaryFile(dir=place, prefix="_rota-check-") as file:
        ahead = os.stat(file.name).st_ctime - time.time()
    if abs(ahead) > SKEW:
        raise ConfigError(
            f"The disk of {place} is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine's clock. Files "
            f"that still grow would be read, or files would be read so much later. Set both by the same NTP server"
        )
    return f"The disk of {place} and this machine agree on the time"


def _find_writable(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it. Raise PermissionError if it cannot be written."""
    place = next((f for f in (folder, *folder.parents) if f.exists()), Path("/"))
    if not os.access(place, os.W_OK):
        raise PermissionError(f"{place} cannot be written")
    return place


def _check_table(pipeline: "Pipeline") -> str:
    from rota.registry import open_tables
    from rota.stores import is_url

    tables = open_tables(pipeline, pipeline.group)
    if (seen := tables.describe()) is None:
        if not is_url(tables.location):
            _find_writable(Path(tables.location))
        return f"{tables.location} does not exist yet; the first batch creates it"
    return f"{tables.location} {seen}"
