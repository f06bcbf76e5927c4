"""`python -m tests.chaos --protocol claim --minutes 5`: kills and pauses of real processes, every row counted at the end.

Exit code 1 if a row is lost or doubled. Without `--spark` a run reads and writes by pyarrow; all else is what ships.
"""

import os
import sys
import tempfile
from contextlib import ExitStack, nullcontext
from pathlib import Path

import click
import psutil

from rota.coordination.embedded import EmbeddedZooKeeper
from rota.local.bucket import serve_buckets
from rota.local.cluster import SparkCluster
from tests.chaos.stage import Stage
from tests.dataplane.kafka.broker import Broker


@click.command()
@click.option(
    "--protocol",
    "protocols",
    multiple=True,
    default=("claim", "race", "ordinal"),
    show_default=True,
    type=click.Choice(["assigned", "claim", "race", "ordinal"]),
)
@click.option("--minutes", default=5.0, show_default=True, help="Of strikes, for each protocol.")
@click.option("--workers", default=3, show_default=True, type=click.IntRange(2), help="An agent and a run each.")
@click.option("--seed", default=1, show_default=True, help="Draws the strikes and the processes that they hit.")
@click.option("--spark", is_flag=True, help="Each worker has its own Spark, which is killed, too.")
@click.option("--cluster", is_flag=True, help="That Spark is on a standalone cluster, whose parts are killed.")
@click.option("--bucket", is_flag=True, help="Files land, and the table lies, in a bucket.")
@click.option("--kafka", is_flag=True, help="Records are in topics of a broker.")
@click.option("--keep", type=click.Path(path_type=Path), help="The folder of files, table and logs; it stays.")
def main(
    protocols: tuple[str, ...],
    minutes: float,
    workers: int,
    seed: int,
    spark: bool,
    cluster: bool,
    bucket: bool,
    kafka: bool,
    keep: Path | None,
) -> None:
    """Kills and stops agents and runs, and counts every row."""
    broken = False
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as made,
        EmbeddedZooKeeper(Path(made) / "zookeeper") as server,
        serve_buckets((keep or Path(made)) / "bucket") if bucket else nullcontext() as buckets,
        SparkCluster(Path(made) / "cluster", environ=buckets.environ if buckets else {})
        if cluster
        else nullcontext() as sparks,
        ExitStack() as stack,
    ):
        broker = Broker(Path(made) / "kafka") if kafka else None
        stack.callback(broker.stop if broker else str)
        os.environ.update(buckets.environ if buckets else {})
        if sparks:
            os.environ["PYSPARK_PYTHON"] = str(sparks.write_python())
        for protocol in protocols:
            folder = (keep or Path(made)) / protocol
            stage = Stage(
                folder,
                server.hosts,
                protocol,
                seed,
                workers,
                spark=spark,
                cluster=sparks,
                buckets=buckets,
                broker=broker,
            )
            found = stage.play(60 * minutes)
            broken = broken or not found.right
            strikes = ", ".join(f"{kind} {times}" for kind, times in sorted(stage.done.items()))
            click.echo(f"{protocol}: {'right' if found.right else 'BROKEN'}. {found}")
            claims, forced = stage.count_claims(), stage.count_claims("reason=forced")
            click.echo(f"  {strikes}; claims: {claims}, forced {forced}; writes refused: {stage.refused}")
            for one in stage.fell:
                click.echo(f"  ended by itself: {one}")
    here = psutil.Process()
    spent = sum(sum(one.cpu_times()[:4]) for one in (here, *here.children(recursive=True)))  # with children that ended
    click.echo(f"{spent:.0f} s of CPU time")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
