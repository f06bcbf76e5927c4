"""`rota up`: ZooKeeper, n workers and Dagster on this machine, until Ctrl-C."""

import os
import shlex
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota.cli import view
from rota.errors import RotaError
from rota.face.need import NEEDS_OPERATOR

if TYPE_CHECKING:
    from rota.cli.observer import GroupObserver
    from rota.local.folder import StateFolder
    from rota.local.stack import Stack


BUCKET = "rota"  # of `--s3`
NEEDS_INTERVAL = 30.0  # seconds between two searches for needs; a search writes a znode that all watchers read


@click.command("up")
@click.option(
    "--workers", default=2, show_default=True, type=click.IntRange(min=1), help="Workers, each with its own Spark."
)
@click.option("--port", default=3000, show_default=True, help="The port of Dagster's page; another one if it is taken.")
@click.option("--zookeeper-port", type=int, help="The port of ZooKeeper. [default: 2181, another one if it is taken]")
@click.option("--state", default=".rota", show_default=True, type=click.Path(path_type=Path), help="The state folder.")
@click.option(
    "--land/--no-land",
    default=True,
    show_default=True,
    help="Land the demo's flights, so that there is something to consume.",
)
@click.option("--kafka", is_flag=True, help="Start a broker of Kafka as well, to try pipelines of topics.")
@click.option("--s3", is_flag=True, help="Start a server of S3 as well, to try pipelines of a bucket.")
def command(
    workers: int, port: int, zookeeper_port: int | None, state: Path, land: bool, kafka: bool, s3: bool
) -> None:
    """Start ZooKeeper, workers and Dagster on this machine.

    Ctrl-C ends all of them. Topics and objects stay in the state folder, as tables do.
    """
    from rota.local import dagster_services
    from rota.local.code_server import CodeServer
    from rota.local.folder import StateFolder
    from rota.local.restarts import Restarts
    from rota.local.stack import Stack, end_on_sigterm, read_environment

    progress = view.Progress()
    with end_on_sigterm(), Stack(StateFolder(state), read_environment()) as stack, progress.show_spinner():
        hosts = stack.start_zookeeper(choose_port(zookeeper_port))
        progress.say(f"ZooKeeper is up at {hosts}")
        for line in start_sources(stack, kafka, s3):
            progress.say(line)
        for number in range(workers):
            stack.start_worker(f"w{number + 1}")
        if land:
            _land_flights(stack.state.landing / "flights", progress)
        progress.show_step("Dagster starts")
        page = stack.start_dagster(port)
        variables = stack.announce(page)
        while not page.answers():
            stack.check()
            time.sleep(0.2)
        progress.say(f"Dagster's page is at {page.address}")
        _print_next_steps(variables, stack.state)
        os.environ.update(variables)  # for `NeedsReporter`
        NeedsReporter(progress).start()
        restarts = Restarts(stack, dagster_services.NAMES, progress.say)
        code = CodeServer(lambda: stack.children[dagster_services.CODE].process.pid, page, progress.say)
        try:
            while True:
                keep_running(stack, progress)
                restarts.poll()
                code.poll()
                time.sleep(0.5)
        except KeyboardInterrupt:
            progress.say("ending Dagster, the workers, ZooKeeper")


def choose_port(wanted: int | None) -> int:
    """Choose the port of ZooKeeper: that of the user, so that an exported ROTA_ZOOKEEPER stays valid, else a free one.

    Raises:
        ConfigError: The port that the user names is taken.
    """
    from rota.errors import ConfigError
    from rota.machine import free_port

    port = free_port(2181 if wanted is None else wanted)
    if wanted not in (None, port):
        raise ConfigError(f"--zookeeper-port {wanted} is taken. End what listens there, or choose another port")
    return port


def keep_running(stack: "Stack", progress: view.Progress) -> None:
    """Start ZooKeeper again if it ended, and report the workers that ended; `Restarts` restarts Dagster's processes."""
    from rota.local.dagster_services import NAMES

    if how := stack.restart_zookeeper():
        progress.say(f"ZooKeeper {how}; it is back at {stack.env['ROTA_ZOOKEEPER']}, with its data")
    for child in [one for one in stack.children.values() if not one.running and one.name not in NAMES]:
        del stack.children[child.name]
        child.end(patience=0)
        again = f"rota worker --id {child.name}"
        how = child.describe_end()
        progress.say(f"{child.name} {how}; the others take over. To start it again, in another terminal: {again}")


class NeedsReporter:
    """Prints each need of an operator once, and once when it is over; see `rota.face.needs`.

    Invariant: no error of a search ends the stack.
    """

    def __init__(self, progress: view.Progress) -> None:
        self._progress = progress
        self._observers: dict[str, GroupObserver] = {}  # by group
        self._reported: dict[str, str] = {}  # by pipeline, worker or group, and cause

    def start(self) -> None:
        """Search every `NEEDS_INTERVAL` seconds, until the process ends."""
        threading.Thread(target=self._run, name="rota-needs", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(NEEDS_INTERVAL)
            self.report(self.find())

    def report(self, found: Mapping[str, str]) -> None:
        """Print the needs that are new and those that are over."""
        for key, line in found.items():
            if key not in self._reported:
                self._progress.say(f"{NEEDS_OPERATOR}: {line}")
        for key, line in self._reported.items():
            if key not in found:
                self._progress.say(f"is over: {line}")
        self._reported = {key: self._reported.get(key, line) for key, line in found.items()}

    def find(self) -> dict[str, str]:
        """Find the needs of operators: a line for each cause of a pipeline, worker or group. A silent ZooKeeper is one."""
        from rota.cli.observer import GroupObserver
        from rota.coordination.client import opened
        from rota.coordination.group_reader import groups
        from rota.coordination.group_state import GroupState
        from rota.face.need import join_needs
        from rota.settings import Settings

        found: dict[str, str] = {}
        try:
            with opened(Settings.from_environment()) as store:
                for group in groups(store):
                    observer = self._observers.setdefault(group, GroupObserver(GroupState(store, group)))
                    observer.tree = GroupState(store, group)
                    needs = [need for need in observer.observe().needs if need.person]
                    found |= {f"{group} {one.key}": one.line for one in join_needs(needs)}
        except RotaError as error:
            found["ZooKeeper"] = str(error)
        except Exception as error:  # a bug in rota ends neither the workers nor this thread
            found["rota"] = f"the search for needs failed: {type(error).__name__}: {error}. See rota status"
        return found


def start_sources(stack: "Stack", kafka: bool, s3: bool) -> Iterator[str]:
    """Start the sources that are asked for, before the workers, which get their addresses.

    Yields:
        A line for each, with a source to copy.

    Raises:
        ConfigError: a source is not installed.
    """
    if kafka:
        broker = stack.start_kafka({"auto.create.topics.enable": "true"})
        source = 'kafka("${KAFKA_SERVERS}", "orders", schema="id long, shop string")'
        yield f"Kafka is up at {broker.servers}, and makes a topic with its first record. In a pipeline: {source}"
    if s3:
        server = stack.start_bucket(BUCKET)
        source = f'files("s3://{BUCKET}/orders", format="json", schema="id long, shop string")'
        yield f"S3 is up at {server.endpoint}; {server.data / BUCKET} is its bucket {BUCKET}. In a pipeline: {source}"


def _land_flights(folder: Path, progress: view.Progress) -> None:
    """Land the whole year. If its data is not installed, print that and continue: other pipelines do not need it."""
    from rota.errors import ConfigError
    from rota.local.flights import MONTHS, FlightsFolder
    from rota.local.storage import open_folder

    try:
        landed = FlightsFolder(open_folder(folder)).prepare().land(MONTHS)
    except ConfigError as error:
        progress.say(str(error))
        return
    progress.say(f"{len(landed.files)} files landed with {landed.rows:,} flights in {folder}")


def _print_next_steps(variables: Mapping[str, str], state: "StateFolder") -> None:
    """Print what to type in another terminal, and the variables that a command needs elsewhere."""
    exports = "export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    folder = state.root.absolute()
    found = folder.name == ".rota"  # as `find_running` looks for it
    view.print_parts(
        "",
        f"  look at      {variables['ROTA_DAGSTER']}",
        f"  logs         {state.logs}",
        f"  in another terminal:  {f'cd {shlex.quote(str(folder.parent))}' if found else exports}",
        "  then         rota status --watch | rota why flights:UA | rota drain w2 | rota check",
        "  your own     cp pipelines/flights.py pipelines/mine.py && rota try pipelines/mine.py",
        *([f"  elsewhere    {exports}"] if found else []),
        "  end it       Ctrl-C",
        "",
    )
