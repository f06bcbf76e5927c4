"""`rota up`: ZooKeeper, n workers and Dagster on this machine, until Ctrl-C."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota.cli import view

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.demo.stage import Stage


@click.command("up")
@click.option(
    "--workers", default=2, show_default=True, type=click.IntRange(1, 8), help="Workers, each with its own Spark."
)
@click.option("--port", default=3000, show_default=True, help="Dagster's page; another one if it is taken.")
@click.option(
    "--state", default=".rota", show_default=True, type=click.Path(path_type=Path), help="Where state is kept."
)
@click.option(
    "--land/--no-land",
    default=True,
    show_default=True,
    help="Land the demo's flights, so that there is something to consume.",
)
def command(workers: int, port: int, state: Path, land: bool) -> None:
    """ZooKeeper, workers and Dagster on this machine; stays until Ctrl-C, ends all of it then."""
    from rota.demo.page import Page
    from rota.demo.play import OPTIONS, alive
    from rota.demo.stage import Stage, State, environment, stopping
    from rota.machine import free_port

    progress = view.Progress()
    with stopping(), Stage(State(state), environment()) as stage, progress.running():
        hosts = stage.zookeeper(free_port(2181))
        progress.say(f"ZooKeeper is up at {hosts}")
        for number in range(workers):
            stage.worker(f"w{number + 1}", *OPTIONS)
        chosen = free_port(port)
        stage.dagster(chosen)
        if land:
            _land(stage.state.landing / "flights", progress)
        page, keep = Page(f"http://127.0.0.1:{chosen}"), alive(stage)
        progress.doing("Dagster starts")
        while not page.ready():
            keep()
            time.sleep(0.2)
        progress.say(f"Dagster's page is at {page.address}")
        _next(stage.env, page.address, stage.state.logs)
        try:
            while True:
                outlive(stage, keep, progress)
                time.sleep(0.5)
        except KeyboardInterrupt:
            progress.say("ending Dagster, the workers, ZooKeeper")


def outlive(stage: "Stage", keep: "Callable[[], None]", progress: view.Progress) -> None:
    """ZooKeeper is brought back with what it knew; a worker may end while the rest goes on, as in life; nothing goes on
    without Dagster."""
    if how := stage.revive():
        progress.say(f"ZooKeeper {how}; it is back at {stage.env['ROTA_ZOOKEEPER']}, with what it knew")
    while (child := stage.lost()) and child.name != "dagster":
        del stage.children[child.name]
        child.end(patience=0)
        again = f"rota worker --id {child.name}"
        progress.say(f"{child.name} {child.how()}; the others take over. In another terminal, to have it back: {again}")
    keep()


def _land(folder: Path, progress: view.Progress) -> None:
    """The whole year, if the data is installed; `up` serves other pipelines as well without it."""
    from rota.demo.landing import MONTHS, Landing
    from rota.errors import ConfigError

    try:
        landed = Landing(folder).prepare().land(MONTHS)
    except ConfigError as error:
        progress.say(str(error))
        return
    progress.say(f"{len(landed.files)} files landed with {landed.rows:,} flights in {folder}")


def _next(env: dict[str, str], address: str, logs: Path) -> None:
    """What to type in another terminal."""
    names = ("ROTA_ZOOKEEPER", "ROTA_PIPELINES", "ROTA_LANDING", "ROTA_TABLES")
    exports = " ".join(f"{name}={shlex.quote(env[name])}" for name in names)
    view.show(
        "",
        f"  look at      {address}",
        f"  logs         {logs}",
        f"  in another terminal:  export {exports}",
        "  then         rota status --watch | rota why flights:UA | rota drain w2 | rota check",
        "  your own     cp pipelines/flights.py pipelines/mine.py",
        "  end it       Ctrl-C",
        "",
    )
