"""Consuming runs of one worker, by the shipped `serve` over a real Delta table, without Dagster, and mostly without Spark.

The stage starts and kills it, and asks it to stop between writing and committing, or at a drawn moment. `--unfenced` takes
the fence away. With `--spark` the worker's Spark does the work.
"""

import itertools
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rota.catalog import load
from rota.coordination.client import opened
from rota.coordination.group_state import GroupState
from rota.dataplane.kafka.declaration import Kafka
from rota.dataplane.spark import writing
from rota.errors import RotaError
from rota.ids import worker_of
from rota.ledger.ledger import Ledger
from rota.ledger.values import TableClaim
from rota.registry import open_ports
from rota.run.serve import RunLimits, serve
from rota.run.work import find_work
from rota.settings import Settings
from tests.chaos.plain_job import PlainJob, TopicJob
from tests.waiting import wait_until


@click.command()
@click.option("--group", required=True)
@click.option("--id", "worker", required=True)
@click.option("--folder", required=True, type=click.Path(path_type=Path))
@click.option("--unfenced", is_flag=True)
@click.option("--spark", is_flag=True)
def main(group: str, worker: str, folder: Path, unfenced: bool, spark: bool) -> None:
    """Serves the worker in each of its lives, until it is killed."""
    if unfenced:
        Ledger.renew = renew_blindly  # type: ignore[method-assign]
    settings = Settings.from_environment()
    for number in itertools.count():
        try:
            with opened(settings) as store:
                serve_once(GroupState(store, group), folder, worker, f"{worker}-{os.getpid()}-{number}", spark)
        except RotaError as error:  # as Dagster's run, which fails: the next one looks again
            click.echo(f"{type(error).__name__}: {error}")


def stop_if_asked(mark: Path) -> None:
    """Stops this process, as SIGSTOP does, where the stage asks for it: what was written is not committed yet."""
    if mark.exists() and not mark.read_text():
        stop(mark)


def stop_later(mark: Path) -> None:
    """Stops this process after the seconds that the mark holds, if it holds some: at any moment of the batch that begins."""
    if mark.exists() and (seconds := mark.read_text()):
        threading.Timer(float(seconds), stop, (mark,)).start()


def stop(mark: Path) -> None:
    """Removes the mark, which the stage waits for, and stops this process."""
    mark.unlink(missing_ok=True)
    os.kill(os.getpid(), signal.SIGSTOP)


def write_and_stop(mark: Path, write: Callable[..., Any] = writing.write) -> Callable[..., Any]:
    """Spark writes; then it stops if the mark asks it to."""

    def call(*args: Any, **more: Any) -> Any:
        files = write(*args, **more)
        stop_if_asked(mark)
        return files

    return call


def renew_blindly(table: Ledger, claimed: TableClaim, partitions: tuple[str, ...]) -> TableClaim:
    """The claim on the newest version, even if a partition moved since."""
    newest = table.open_existing()
    return replace(claimed, snapshot=newest, version=newest.number, columns=newest.schema)


def serve_once(tree: GroupState, folder: Path, worker: str, run_id: str, spark: bool) -> None:
    """One run, for the worker's life of now."""
    pipeline = load(folder / "pipelines").pipelines["p"]
    ports = open_ports(pipeline, tree.group, tree.meta().id)
    mark = folder / f"stop-{worker}"
    if spark:
        writing.write = write_and_stop(mark)
    else:
        land, table = pipeline.source.texts[0], f"{pipeline.table.path}/main"
        kind = TopicJob if isinstance(pipeline.source, Kafka) else PlainJob
        began, written = (lambda: stop_later(mark)), (lambda: stop_if_asked(mark))
        ports = replace(ports, job=kind(ports.source, land, table, began=began, written=written))
    incarnation = wait_until(lambda: find_incarnation(tree, worker), 600, pause=0.5)
    work = find_work(tree, pipeline, ports.source, incarnation)
    lags = tuple(work[0].lags) if work else ()
    for event in serve(tree, pipeline, incarnation, lags, run_id, ports, RunLimits(3600, 3600)):
        click.echo(str(event))


def find_incarnation(tree: GroupState, worker: str) -> str:
    """The life of the worker; empty while it has none."""
    return next((one.incarnation for one in tree.live() if worker_of(one.incarnation) == worker), "")


if __name__ == "__main__":
    main()
