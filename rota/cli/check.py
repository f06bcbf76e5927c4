"""`rota check`: every setting with its origin, then Java, ZooKeeper, the pipelines, Spark, tables and sources one by one."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota import errors
from rota.cli import view
from rota.errors import MASK, SECRET, RotaError

if TYPE_CHECKING:
    from rota.coordination.client import ZooKeeperStore
    from rota.coordination.tree import Tree
    from rota.pipeline import Catalog, Pipeline
    from rota.settings import Settings
HASH = re.compile(r"(?<=:)[A-Za-z0-9+/]{27}=")  # of a password, in an ACL


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; `origin` is `environment` or `default`, or `missing` for a `${VAR}` of a pipeline that is not set."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that was tried: whether it works, what was seen, and how to mend it."""

    name: str
    works: bool
    seen: str
    fix: str = ""


@click.command("check")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> None:
    """Every setting with its origin, and whether Java, ZooKeeper, Spark, tables and sources work; exit 2 if one does not."""
    from rota.settings import Settings

    settings = Settings.from_environment()
    catalog, refused = _catalog(settings)
    found = list(_settings(settings, catalog, os.environ))
    probes: list[Probe] = []
    if not as_json:
        view.show(view.table("Settings", ["name", "value", "origin"], [(s.name, s.value, s.origin) for s in found]), "")
    for tried in _probes(settings, catalog, refused):
        probe = replace(tried, seen=errors.masked(tried.seen))  # paths are filled in, also from what is secret
        probes.append(probe)
        if not as_json:
            _say(probe)
    works = all(p.works for p in probes)
    if as_json:
        view.document({"works": works, "settings": [asdict(s) for s in found], "probes": [asdict(p) for p in probes]})
    sys.exit(0 if works else 2)


def _say(probe: Probe) -> None:
    click.secho(f"{'ok ' if probe.works else 'NO '} {probe.name:<24}", fg="green" if probe.works else "red", nl=False)
    click.echo(f" {probe.seen}" + (f". {probe.fix}" if probe.fix and not probe.works else ""))


def masked(name: str, value: str) -> str:
    """The value, unless its name says that it is a secret; a login inside an address never shows."""
    return MASK if value and SECRET.match(name) else errors.masked(HASH.sub(MASK, value))


def _settings(settings: "Settings", catalog: "Catalog | None", environ: Mapping[str, str]) -> Iterator[Setting]:
    from rota.settings import VARIABLE

    for field in fields(settings):
        name, value = f"ROTA_{field.name.upper()}", getattr(settings, field.name)
        text = f"{value.total_seconds():g} s" if isinstance(value, timedelta) else str(value)
        given = name in environ or f"{name}_FILE" in environ
        yield Setting(name, masked(name, text), "environment" if given else "default")
    for name in ("JAVA_HOME", "DAGSTER_HOME"):
        if name in environ:
            yield Setting(name, environ[name], "environment")
    wanted = {
        name
        for pipeline in (catalog.pipelines.values() if catalog else ())
        for text in (pipeline.source.path, pipeline.table.path, *map(str, pipeline.source.options.values()))
        for name in VARIABLE.findall(text)
    }
    for name in sorted(wanted):
        there = name in environ
        yield Setting(name, masked(name, environ[name]) if there else "", "environment" if there else "missing")


def _catalog(settings: "Settings") -> "tuple[Catalog | None, str]":
    from rota.pipeline import load

    try:
        return load(settings.pipelines), ""
    except RotaError as error:
        return None, str(error)


def _probes(settings: "Settings", catalog: "Catalog | None", refused: str) -> Iterator[Probe]:
    """One after the other, so that a slow one shows what it waits for."""
    yield _java()
    yield from _zookeeper(settings)
    if catalog is None:
        yield Probe("pipelines", False, refused)
        return
    names = ", ".join(catalog.pipelines) or "none"
    yield Probe("pipelines", bool(catalog.pipelines), f"{names} in {settings.pipelines}", "Add a file with a Pipeline")
    for file, why in catalog.refused.items():
        yield Probe(f"pipeline file {errors.plain(file)}", False, why)
    for pipeline in catalog.pipelines.values():
        yield _tried(f"source of {pipeline.name}", partial(_source, pipeline), "Check its path and its rights")
        yield _tried(f"table of {pipeline.name}", partial(_table, pipeline), "Check its path and its rights")


def _tried(name: str, what: Callable[[], str], fix: str) -> Probe:
    """The probe of one call: what it returns was seen, an expected error is the answer with its own fix."""
    try:
        return Probe(name, True, what())
    except RotaError as error:
        return Probe(name, False, str(error))
    except OSError as error:
        return Probe(name, False, f"{type(error).__name__}: {error}", fix)


def _java() -> Probe:
    from rota.dataplane.endpoint import archive
    from rota.java import find_java, java_version

    starts = (
        "the archive of `rota prepare` is there" if archive().exists() else "`rota prepare` halves the start of a Spark"
    )
    try:
        program = find_java()
    except RotaError as error:
        return Probe("Java", False, str(error))
    return Probe("Java", True, f"{program} is version {java_version(program)}; {starts}")


def _zookeeper(settings: "Settings") -> Iterator[Probe]:
    """The server, the groups in it, the Spark of each of their live workers, and their records."""
    from rota.coordination.client import opened
    from rota.coordination.tree import Tree, groups

    try:
        with opened(settings) as store:
            there = groups(store)
            yield Probe("ZooKeeper", True, f"{settings.zookeeper} answers; groups: {', '.join(there) or 'none yet'}")
            yield from _rights(store, settings)
            for group in there:
                yield from _spark(Tree(store, group))
                yield from _records(Tree(store, group))
    except RotaError as error:
        yield Probe("ZooKeeper", False, str(error))


def _rights(store: "ZooKeeperStore", settings: "Settings") -> Iterator[Probe]:
    """Each server that gives no session, and each right that is not as it should be."""
    from rota.coordination.protect import exposed

    for place in settings.zookeeper.split(","):
        if why := store.access.unmet(place):
            yield Probe(f"ZooKeeper {place}", False, why, "The others serve; mend this one")
    if not store.access.roles:
        yield Probe("rights", True, "everybody who reaches ZooKeeper may do everything: ROTA_ZOOKEEPER_ACL is not set")
        return
    wrong = exposed(store)
    for what, paths in wrong.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield Probe("rights", False, f"{paths[0]}{more}: {what}", "As a person: rota protect")
    if not wrong:
        yield Probe("rights", True, f"as ROTA_ZOOKEEPER_ACL says; this is {store.access.me}")


def _spark(tree: "Tree") -> Iterator[Probe]:
    live = tree.newest(tree.live())
    if not live:
        fix = f"Start one: rota worker --group {tree.group}"
        yield Probe(f"workers of {tree.group}", False, "no live worker", fix)
    for worker, one in sorted(live.items()):
        endpoint = one.record.endpoint if one.record else None
        if not endpoint:
            yield Probe(f"Spark of {worker}", True, "none of its own: its runs start a local session")
            continue
        yield _reached(f"Spark of {worker}", endpoint)


def _records(tree: "Tree") -> Iterator[Probe]:
    """Each record that cannot be read, with what mends it."""
    from rota.coordination.mending import unreadable

    for one in unreadable(tree):
        yield Probe(f"record {one.path}", False, one.why, one.mend)


def _reached(name: str, endpoint: str) -> Probe:
    """Whether the Spark Connect server at `endpoint` answers."""
    from rota.dataplane.pulse import unanswered

    if why := unanswered(endpoint, 5):
        return Probe(name, False, f"{endpoint}: {why}", "See the worker's log; it starts its Spark again by itself")
    return Probe(name, True, f"{endpoint} answers")


def _source(pipeline: "Pipeline") -> str:
    from rota.backlog import discover
    from rota.settings import expanded

    keys = discover(pipeline)
    some = f": {' '.join(keys[:8])}{' ...' if len(keys) > 8 else ''}" if keys else ""
    return f"{expanded(pipeline.source.path)} has {len(keys)} partitions{some}"


def _table(pipeline: "Pipeline") -> str:
    from rota.demo import deltalog
    from rota.settings import expanded

    folder = Path(expanded(pipeline.table.path))
    if not deltalog.exists(folder / "main"):
        nearest = next((f for f in (folder, *folder.parents) if f.exists()), Path("/"))
        if not os.access(nearest, os.W_OK):
            raise PermissionError(f"{nearest} cannot be written")
        return f"{folder} is not there yet; the first batch makes it"
    log = deltalog.read(folder / "main")
    return f"{folder} is at version {log.version}, {len(log.files)} files, {sum(n or 0 for n in log.files.values()):,} rows"
