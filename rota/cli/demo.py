"""`rota demo`: up, landing, faults, verdict, down."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota.cli import view

if TYPE_CHECKING:
    from rota.demo.figures import Figures
    from rota.demo.play import Play

SESSION = "4"  # seconds: how long a dead worker counts as alive


@click.command("demo")
@click.option(
    "--workers", default=3, show_default=True, type=click.IntRange(1, 8), help="Workers, each with its own Spark."
)
@click.option("--faults/--no-faults", default=True, help="Kill a worker, freeze a run, let a worker join.")
@click.option(
    "--state",
    default=".rota/demo",
    show_default=True,
    type=click.Path(path_type=Path),
    help="State folder; emptied first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(workers: int, faults: bool, state: Path, as_json: bool) -> None:
    """Everything on real parts, with a worker killed in the middle; exit code 0 only if nothing was lost or doubled."""
    progress = view.Progress(silent=as_json)
    with progress.running():
        figures = _performed(workers, faults and workers > 1, state, progress)
    if as_json:
        view.document(figures.as_json())
    else:
        _report(figures)
    sys.exit(1 if figures.broken() else 0)


def _performed(workers: int, faults: bool, state: Path, progress: view.Progress) -> "Figures":
    from rota.demo.landing import Landing
    from rota.demo.play import OPTIONS, Play, alive, page
    from rota.demo.stage import Stage, State, environment, stopping
    from rota.demo.watch import Watch

    with stopping(), Stage(State(state).emptied(), environment(SESSION)) as stage:
        hosts = stage.zookeeper()
        progress.say(f"ZooKeeper is up at {hosts}")
        for number in range(workers):
            stage.worker(f"w{number + 1}", *OPTIONS)
        dagster = page(stage)
        _served(Path(stage.env["ROTA_PIPELINES"]))
        landing = Landing(stage.state.landing / "flights").prepare()
        with Watch.over(hosts, stage.state.tables / "flights" / "main", alive(stage)) as watch:
            play = Play(stage, landing, watch, dagster, progress.say)
            play.up(workers)
            if faults:
                play.strike()
            play.rest()
            return _figures(play, faults, progress)


def _served(pipelines: Path) -> None:
    """The demo runs pipelines/flights.py as it stands there: a file that cannot be loaded is said at once."""
    from rota.errors import ConfigError
    from rota.pipeline import load

    catalog = load(pipelines)
    if "flights" not in catalog.pipelines:
        why = catalog.refused.get("flights.py", f"There is no flights.py in {pipelines}")
        raise ConfigError(f"{why}. The demo runs this pipeline: git checkout pipelines/flights.py")


def _figures(play: "Play", faults: bool, progress: view.Progress) -> "Figures":
    """All that was found out; the picture is drawn while ZooKeeper is still there to be asked."""
    from rota.demo.figures import Figures, epochs, launches
    from rota.demo.verify import verify

    tables = play.stage.state.tables
    verdict = verify(play.stage.state.landing / "flights", tables / "flights", "flights")
    picture = play.stage.state.root / "history.png"
    picture.write_bytes(_picture(play))
    return Figures(
        verdict=verdict,
        epochs=epochs(play.watch.tree),
        launches=launches(play.watch.commits, play.page.runs()),
        refused=len(play.watch.refusals()),
        killed=play.killed,
        joined=play.joined,
        zombie=play.zombie,
        faults=faults,
        seconds=progress.seconds,
        stages=play.stages,
        picture=str(picture),
    )


def _picture(play: "Play") -> bytes:
    from rota.history import Moment, Tick, draw, read

    commits = [Tick(c.at, p, c.run_id) for c in play.watch.commits for p in c.ranges]
    moments = []
    if play.killed:
        moments.append(Moment(play.killed.at, f"{play.killed.worker} killed", play.killed.worker))
    if play.zombie:
        moments.append(Moment(play.zombie.at, f"run of {play.zombie.worker} frozen"))
        moments.append(Moment(play.zombie.woken, "woken"))
    title = "  ".join(
        [
            f"{play.watch.consumed()} files in {len(commits)} batches.",
            *([f"{play.killed.worker} killed, taken over in {play.killed.seconds:.0f} s."] if play.killed else []),
            *([f"{play.joined.worker} joined."] if play.joined else []),
            *(["A late write refused."] if play.zombie else []),
        ]
    )
    return draw(read(play.watch.tree, commits, moments), title)


def _report(figures: "Figures") -> None:
    """The before and after of each epoch, the verification, the faults, and what to type next."""
    v, k, z = figures.verdict, figures.killed, figures.zombie
    view.show("")
    view.show(
        view.table(
            "Epochs",
            ["epoch", "at", "before", "after", "moves", "had to", "placed", "what"],
            [
                (e.epoch, view.clock(e.at), e.imbalance_before, e.imbalance_after, e.moves, e.unavoidable_moves,
                 e.placements, e.sentence)
                for e in figures.epochs
            ],
            right=["epoch", "before", "after", "moves", "had to", "placed"],
        ),
        "",
    )  # fmt: skip
    if k:
        legs = ", ".join(f"{name} {seconds:.1f}" for name, seconds in k.legs.items())
        view.show(f"{k.worker} was killed in a batch: {k.seconds:.1f} s until {k.taken_by} committed for it ({legs})")
    if z:
        view.show(
            f"A run of {z.worker} was frozen for {z.woken - z.at:.1f} s, overtaken by {z.overtaken_by}, woken: "
            f"its write to {' '.join(z.refused)} was refused"
        )
    view.show(
        f"Commits: {figures.launches.commits} by {figures.launches.runs} runs, {figures.launches.by_sensor} of them "
        f"launched by a sensor; writes refused: {figures.refused}",
        f"Orphan files that nobody can see: {v.orphans} ({v.orphan_bytes:,} bytes)",
        f"Rows read {v.rows_landed:,} = rows written {v.rows_written:,}; duplicates {v.duplicates}, missing {v.missing}, "
        f"gaps {v.gaps}, overlaps {v.overlaps}, over {v.files_landed} files of {v.partitions} partitions",
        *v.details,
        f"Picture: {figures.picture}",
        f"{figures.seconds:.0f} s in all: " + ", ".join(f"{name} {s:.0f}" for name, s in figures.stages.items()),
        "",
    )
    for law in figures.broken():
        click.secho(f"Broken: {law}", fg="red")
    if not figures.broken():
        click.secho("Nothing lost, nothing doubled.", fg="green")
        from rota.demo.figures import NEXT

        view.show(f"now: {NEXT}")
