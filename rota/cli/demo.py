"""`rota demo`: starts everything, lands flights, causes faults, and verifies the table."""

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from rota.cli import view

if TYPE_CHECKING:
    from rota.demo.figures import Figures
    from rota.demo.scenario import Scenario
    from rota.local.stack import Stack

PIPELINE = "flights"
OF_KAFKA = """from rota import Pipeline, delta
from rota.kafka import kafka

pipeline = Pipeline(
    source=kafka("${{KAFKA_SERVERS}}", "flights", format="csv", schema={schema!r}, options={{"nullValue": "NA"}}),
    table=delta("${{ROTA_TABLES}}/flights"),
)
"""
SESSION = "4"  # seconds until the session of a frozen process expires
# A choice -> what starts its server and returns a line about it.
STORES: "Mapping[str, Callable[[Stack], str]]" = {
    "disk": lambda _: "",
    "s3": lambda stack: f"a server of S3, for landing folder and table, is up at {stack.start_bucket().endpoint}",
}
SPARKS: "Mapping[str, Callable[[Stack], str]]" = {
    "local": lambda _: "",
    "cluster": lambda stack: f"a standalone cluster of Spark is up at {stack.start_cluster().url}",
}

SOURCES: "Mapping[str, Callable[[Stack], str]]" = {
    "files": lambda _: "",
    "kafka": lambda stack: f"a broker of Kafka is up at {stack.start_kafka().servers}",
}


@click.command("demo")
@click.option(
    "--workers", default=3, show_default=True, type=click.IntRange(1, 8), help="Workers, each with its own Spark."
)
@click.option(
    "--protocol",
    default="assigned",
    show_default=True,
    help="assigned: Dagster decides; claim, race, ordinal: each worker.",
)
@click.option(
    "--store",
    default="disk",
    show_default=True,
    type=click.Choice(list(STORES)),
    help="Where landing folder and table are: on this disk, or in a bucket of an S3 server that it starts.",
)
@click.option(
    "--spark",
    default="local",
    show_default=True,
    type=click.Choice(list(SPARKS)),
    help="Where Spark works: in each worker, or on a standalone cluster that it starts.",
)
@click.option(
    "--source",
    default="files",
    show_default=True,
    type=click.Choice(list(SOURCES)),
    help="Where the flights are: in landed files, or in a topic of a Kafka broker that it starts.",
)
@click.option("--faults/--no-faults", default=True, help="Kill a worker, freeze a run, start a worker later.")
@click.option(
    "--state",
    default=".rota/demo",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The state folder; it is emptied first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    workers: int, protocol: str, store: str, spark: str, source: str, faults: bool, state: Path, as_json: bool
) -> None:
    """Run everything on this machine, with faults.

    It lands the flights of a year, kills a worker in the middle of a batch, freezes a run, and verifies the table. Exit code
    0 only if no record was lost or duplicated.
    """
    from rota.core.protocols.known_protocols import find_protocol

    find_protocol(protocol)
    progress = view.Progress(silent=as_json)
    with progress.show_spinner():
        first = STORES[store], SPARKS[spark], SOURCES[source]
        figures = _perform(workers, protocol, first, faults and workers > 1, state, progress)
    if as_json:
        view.print_document(figures.as_json())
    else:
        _report(figures, "files" if source == "files" else "records")
    sys.exit(1 if figures.find_broken_laws() else 0)


def _perform(
    workers: int,
    protocol: str,
    first: "Iterable[Callable[[Stack], str]]",
    faults: bool,
    state: Path,
    progress: view.Progress,
) -> "Figures":
    from rota.demo.observer import Observer
    from rota.demo.scenario import Scenario
    from rota.errors import EnvironmentFailed
    from rota.local.flights import FlightsFolder
    from rota.local.flights_topic import FlightsTopic
    from rota.local.folder import StateFolder
    from rota.local.stack import Stack, end_on_sigterm, read_environment
    from rota.local.storage import open_below

    with end_on_sigterm(), Stack(StateFolder(state).empty(), read_environment(SESSION)) as stack:
        for line in filter(None, (start(stack) for start in first)):
            progress.say(line)
        _declare(protocol, stack)
        hosts = stack.start_zookeeper()
        progress.say(f"ZooKeeper is up at {hosts}")
        for number in range(workers):
            stack.start_worker(f"w{number + 1}")
        page = stack.start_dagster(3000)
        _check_pipeline(Path(stack.env["ROTA_PIPELINES"]))
        landing: FlightsFolder | FlightsTopic = (
            FlightsTopic(stack.kafka) if stack.kafka else FlightsFolder(stack.open_landing(PIPELINE))
        ).prepare()
        with Observer.connect_to(hosts, open_below(stack.open_tables(PIPELINE), "main"), stack.check) as observer:
            scenario = Scenario(stack, landing, observer, page, progress.say)
            try:
                scenario.start(workers)
                if faults:
                    scenario.cause_faults()
                scenario.finish()
            except EnvironmentFailed as error:
                raise EnvironmentFailed(f"{error}. {stack.state.describe_logs()}") from error
            return _measure(scenario, faults, progress)


def _declare(protocol: str, stack: "Stack") -> None:
    """Write pipeline files for this source and protocol, unless the checkout's own flights.py serves both."""
    from rota.catalog import load
    from rota.core.protocols.known_protocols import ASSIGNED

    flights = Path(stack.env["ROTA_PIPELINES"]) / "flights.py"
    if (protocol == ASSIGNED and not stack.kafka) or not flights.is_file():
        return
    folder = stack.state.root / "pipelines"
    folder.mkdir()
    if stack.kafka:
        _check_pipeline(flights.parent)
        schema = load(flights.parent).pipelines[PIPELINE].source.schema
        (folder / flights.name).write_text(OF_KAFKA.format(schema=schema))
    else:
        shutil.copyfile(flights, folder / flights.name)
    (folder / "group.py").write_text(f'from rota import Group\n\ngroup = Group("default", protocol="{protocol}")\n')
    stack.env["ROTA_PIPELINES"] = str(folder.resolve())


def _check_pipeline(pipelines: Path) -> None:
    """Raise ConfigError if `pipelines` has no flights.py that can be loaded: the demo runs that file."""
    from rota.catalog import load
    from rota.errors import ConfigError

    catalog = load(pipelines)
    if "flights" not in catalog.pipelines:
        why = catalog.refused.get("flights.py", f"There is no flights.py in {pipelines}")
        raise ConfigError(f"{why}. The demo runs this pipeline: git checkout pipelines/flights.py")


def _measure(scenario: "Scenario", faults: bool, progress: view.Progress) -> "Figures":
    """Verify the table, read the figures and draw the picture while ZooKeeper still runs."""
    from rota.demo.figures import Figures, read_epochs, read_launches
    from rota.demo.landed_topic import LandedTopic
    from rota.demo.verify import verify
    from rota.local.flights_topic import TOPIC, FlightsTopic

    stack = scenario.stack
    landing = scenario.landing
    landed = (
        LandedTopic(stack.kafka.servers, TOPIC, landing.header)
        if stack.kafka and isinstance(landing, FlightsTopic)
        else stack.open_landing(PIPELINE)
    )
    verdict = verify(landed, stack.open_tables(PIPELINE), PIPELINE)
    picture = stack.state.root / "history.png"
    picture.write_bytes(_draw_picture(scenario))
    return Figures(
        verdict=verdict,
        epochs=read_epochs(scenario.observer.tree),
        launches=read_launches(scenario.observer.commits, scenario.page.read_runs()),
        refused=len(scenario.observer.refusals()),
        killed=scenario.killed,
        joined=scenario.joined,
        zombie=scenario.zombie,
        protocol=scenario.observer.tree.meta().protocol,
        faults=faults,
        seconds=progress.seconds,
        stages=scenario.stages,
        picture=str(picture),
    )


def _draw_picture(scenario: "Scenario") -> bytes:
    from rota.face.history import Moment, Tick, read_story
    from rota.face.picture import draw_story

    commits = [Tick(c.at, p, c.run_id) for c in scenario.observer.commits for p in c.ranges]
    moments, words = [], [f"{scenario.observer.count_consumed()} {scenario.landing.unit} in {len(commits)} batches."]
    if kill := scenario.killed:
        moments.append(Moment(kill.at, f"{kill.worker} killed", kill.worker))
        words.append(f"{kill.worker} killed, taken over in {kill.seconds:.0f} s.")
    if join := scenario.joined:
        words.append(f"{join.worker} joined.")
    if zombie := scenario.zombie:
        moments.append(Moment(zombie.at, f"run of {zombie.worker} frozen"))
        moments.append(Moment(zombie.woken, "woken"))
        words.append("A late write refused.")
    return draw_story(read_story(scenario.observer.tree, commits, moments), "  ".join(words))


def _report(figures: "Figures", unit: str) -> None:
    """Print each epoch, the faults, the verdict, and the next command."""
    v, k, z = figures.verdict, figures.killed, figures.zombie
    view.print_parts("")
    view.print_parts(
        view.make_table(
            "Epochs",
            ["epoch", "at", "before", "after", "moves", "unavoidable", "placed", "what"],
            [
                (e.epoch, view.format_time(e.at), e.imbalance_before, e.imbalance_after, e.moves, e.unavoidable_moves,
                 e.placements, e.sentence)
                for e in figures.epochs
            ],
            right=["epoch", "before", "after", "moves", "unavoidable", "placed"],
        ),
        "",
    )  # fmt: skip
    if k:
        legs = ", ".join(f"{name} {seconds:.1f}" for name, seconds in k.legs.items())
        view.print_parts(
            f"{k.worker} was killed in a batch: {k.seconds:.1f} s until {k.taken_by} committed for it ({legs})"
        )
    if z:
        view.print_parts(
            f"A run of {z.worker} was frozen for {z.woken - z.at:.1f} s, overtaken by {z.overtaken_by}, woken: "
            f"its write to {' '.join(z.refused)} was refused"
        )
    view.print_parts(
        f"Commits: {figures.launches.commits} by {figures.launches.runs} runs, {figures.launches.by_sensor} of them "
        f"launched by a sensor; writes refused: {figures.refused}",
        f"Orphan files, in no version of the table: {v.orphans} ({v.orphan_bytes:,} bytes)",
        f"Rows read {v.rows_landed:,} = rows written {v.rows_written:,}; duplicates {v.duplicates}, missing {v.missing}, "
        f"gaps {v.gaps}, overlaps {v.overlaps}, over {v.files_landed:,} {unit} of {v.partitions} partitions",
        *v.details,
        f"Picture: {figures.picture}",
        f"{figures.seconds:.0f} s in all: " + ", ".join(f"{name} {s:.0f}" for name, s in figures.stages.items()),
        "",
    )
    for law in figures.find_broken_laws():
        view.console.print(Text(f"Broken: {law}", "red"), soft_wrap=True)
    if not figures.find_broken_laws():
        view.console.print(Text("Nothing lost, nothing doubled.", "green"))
        from rota.demo.figures import NEXT

        view.print_parts(f"now: {NEXT}")
