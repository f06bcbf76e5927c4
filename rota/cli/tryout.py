"""`rota try`: read a little of a pipeline's source through its schema and transform, without a group, Dagster or a table."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from rota import errors
from rota.cli import view
from rota.cli.group import json_option
from rota.errors import ConfigError, EnvironmentFailed, RotaError
from rota.ids import quote

if TYPE_CHECKING:
    from rota.run.tryout import TriedPartition, Tryout

MAX_COLUMNS = 8  # of a row that a terminal shows
MAX_CHARACTERS = 60  # of a value
STARTING = 120.0  # seconds in which a new Spark must answer
LOCAL = "sc://127.0.0.1:"  # how the address of a Spark that can read this machine's files begins


@click.command("try")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--partitions", default=3, show_default=True, type=click.IntRange(min=1), help="How many partitions.")
@click.option("--key", "keys", multiple=True, help="The key of a partition to try; can be given again.")
@click.option(
    "--records",
    default=10,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many records of each partition a broker gives, and how many rows of each are shown.",
)
@click.option(
    "--spark",
    default="",
    help="A running Spark of this machine, such as sc://127.0.0.1:15002.  [default: that of `rota up`, else a new one]",
)
@json_option
def command(file: Path, partitions: int, keys: tuple[str, ...], records: int, spark: str, as_json: bool) -> None:
    """Try a pipeline file on a little of its data.

    Reads the first file, or the first records, of some partitions through schema and transform, and shows rows, bad records,
    columns and errors. Consumes nothing, and needs no worker, no ZooKeeper and no Dagster. Exit code 1: a run would park a
    partition, or there is nothing to read. Exit code 2: nothing could be tried.
    """
    began = time.monotonic()
    with redirect_stdout(sys.stderr), tempfile.TemporaryDirectory(prefix="rota-try-") as folder:
        place, note, found = _try(file, partitions, keys, records, spark, folder)
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        view.print_document(
            {
                "pipeline": file.stem,
                "source": place,
                "works": found.works,
                "seconds": seconds,
                "note": note,
                **asdict(found),
            }
        )
    else:
        _print(file, place, note, found, seconds)
    sys.exit(0 if found.works else 1)


def _try(
    file: Path, partitions: int, keys: Sequence[str], records: int, spark: str, folder: str
) -> "tuple[str, str, Tryout]":
    """Return the place of the source, why the columns were not compared with the table, and the result."""
    from rota.catalog import load_file
    from rota.dataplane.ports import INSPECT
    from rota.dataplane.spark.session import keep_session
    from rota.registry import open_tables, open_tryout
    from rota.run.tryout import try_out

    with _spark(spark) as answer, keep_session() as connect:
        pipeline = load_file(file)
        ports, lenient = open_tryout(pipeline, folder, records, len(keys) or partitions, connect)
        place = ports.source.observe((), INSPECT).place
        chosen = _choose(ports.source.list_keys(), keys, partitions, place)
        schema, note = None, ""
        try:
            schema = open_tables(pipeline, pipeline.group).main.read_schema()
        except RotaError as error:
            note = f"the columns were not compared with those of the table: {error}"
        with view.show_wait("waiting for Spark, then trying"):
            ids = [pipeline.partition(key) for key in chosen]
            return place, note, try_out(ports, lenient, ids, answer(), schema, records)


def _choose(there: Sequence[str], keys: Sequence[str], partitions: int, place: str) -> Sequence[str]:
    """Return the keys to try. Raises ConfigError for an unknown one."""
    from rota.settings import check_known

    if not there:
        raise ConfigError(f"{place} has no partition yet. If its records are files, put one into {place}/KEY/")
    return [check_known("key", key, there) for key in keys] or there[:partitions]


@contextmanager
def _spark(given: str) -> Iterator[Callable[[], str]]:
    """Yield a function that waits for a Spark and returns its endpoint: the given one, a worker's of the running stack, or
    that of a new Spark, which ends with the command."""
    if endpoint := given or _find_worker():
        yield lambda: endpoint
        return
    from rota.dataplane.spark.spark_server import OPTIONS, SparkServer, SparkSettings
    from rota.java import LIGHT

    server = SparkServer("try", SparkSettings(conf={OPTIONS: " ".join(LIGHT)}))

    def answer() -> str:
        until = time.monotonic() + STARTING
        while not server.ready():
            if server.pid is None or time.monotonic() > until:
                raise EnvironmentFailed(
                    f"Spark did not start: {server.last_words()}. See `rota check` for Java and settings"
                )
            time.sleep(0.1)
        return server.url

    try:
        server.start()
        yield answer
    finally:
        server.stop(grace=0)


def _find_worker() -> str:
    """Return the Spark of a worker of the stack that `rota up` runs here; empty if there is none that answers.

    Workers of another ZooKeeper are not used: they may be on other machines."""
    from rota.local.folder import find_running

    if not (found := find_running(Path.cwd())):
        return ""
    from rota.coordination.client import opened
    from rota.coordination.group_reader import groups
    from rota.coordination.group_state import GroupState
    from rota.dataplane.spark.probe import explain_silence
    from rota.settings import Settings

    with suppress(RotaError), opened(Settings.from_environment(found)) as store:
        for record in (view.record for group in groups(store) for view in GroupState(store, group).live()):
            endpoint = record.endpoint if record else None
            if endpoint and endpoint.startswith(LOCAL) and not explain_silence(endpoint, 1):
                return endpoint
    return ""


def _print(file: Path, place: str, note: str, found: "Tryout", seconds: float) -> None:
    parts: list[object] = [f"{file.stem} reads {place}" + (f"; {note}" if note else ""), ""]
    if found.columns:
        parts += [view.make_table("Columns", ["name", "type"], found.columns.items()), ""]
    if found.rows:
        names = list(found.columns)
        more = f", {len(names) - MAX_COLUMNS} more columns: --json shows them" if len(names) > MAX_COLUMNS else ""
        shown = [[_show(row.get(name)) for name in names[:MAX_COLUMNS]] for row in found.rows]
        parts += [view.make_table(f"First rows{more}", names[:MAX_COLUMNS], shown), ""]
    if found.bad_records:
        bad = [(one["file"], one["position"], one["reason"], _show(one["raw"])) for one in found.bad_records]
        parts += [view.make_table("Bad records", ["file", "line", "reason", "text"], bad), ""]
    view.print_parts(*parts)
    for one in found.partitions:
        if not one.error:
            read = "nothing to read" if one.start == one.end else errors.counted(one.rows, "row")
            refused = f", {errors.counted(one.bad, 'bad record')}" if one.bad else ""
            _print_line("ok " if one.end > one.start else "-- ", one.partition, f"{read}{refused}")
    failed = sorted((one for one in found.partitions if one.error), key=_without_id)
    for _, alike in groupby(failed, key=_without_id):
        first, *rest = alike
        others = f" (and {len(rest)} more)" if rest else ""
        _print_line("NO ", f"{first.partition}{others}", first.error)
    if failed:
        view.print_parts(
            "", f"A run would park what is marked NO. Edit {file} or the data, then: rota try {quote(str(file))}"
        )
    elif not found.works:
        view.print_parts(
            "", f"There is nothing to read. Put a file into a folder below {place}, or choose another --key"
        )
    view.print_parts(f"Took {seconds:g} s. Nothing was consumed")


def _without_id(one: "TriedPartition") -> str:
    """Return the partition's error without its id, by which equal errors are grouped."""
    return one.error.replace(one.partition, "...")


def _print_line(mark: str, name: str, text: str) -> None:
    colour = {"ok ": "green", "NO ": "red"}.get(mark, "dim")
    view.console.print(Text.assemble((f"{mark} {name}", colour), f"  {text}"), soft_wrap=True)


def _show(value: object) -> str:
    text = str(value)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 3]}..."
