"""`python -m tests.conservation --schemas 1000 [--seed N]`: many cases through rota, each judged by the oracle.

The first counterexample is made small and written to a folder. Exit code 1 if there is one."""

import itertools
import math
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import click

from rota.dataplane.spark import session
from rota.local.bucket import serve_buckets
from tests.bucket import on_disk
from tests.conservation import play
from tests.conservation.case import STORES, Case
from tests.conservation.checker import Judgement
from tests.conservation.generate import FILES, draw_case
from tests.conservation.many import Many, count_cpu
from tests.conservation.shrink import shrink
from tests.dataplane.world import kill, start_spark


@click.command()
@click.option("--schemas", default=1000, show_default=True, help="How many cases: a schema and its files each.")
@click.option("--seed", default=0, show_default=True, help="The number that makes them.")
@click.option("--first", default=0, show_default=True, help="The first case's number.")
@click.option("--files", default=FILES, show_default=True, help="Files of a case.")
@click.option("--store", type=click.Choice(STORES), help="Where all of them lie. [default: one of nine in a bucket]")
@click.option("--minutes", default=math.inf, help="No new case after so many.")
def main(schemas: int, seed: int, first: int, files: int, store: str | None, minutes: float) -> None:
    """Judges whether every record of many files is in exactly one table."""
    began = time.monotonic()
    many = Many()
    numbers = itertools.count()
    with (
        tempfile.TemporaryDirectory(prefix="conservation-") as root,
        serve_buckets(Path(root) / "bucket") as buckets,
    ):
        os.environ.update(buckets.environ)
        server, endpoint = start_spark(Path(root) / "spark")
        try:
            spark = session.open_session(endpoint)

            def judge(one: Case) -> Judgement:
                return play.judge_case(one, Path(root) / str(next(numbers)), endpoint, spark, buckets)

            for number in range(first, first + schemas):
                if time.monotonic() - began > 60 * minutes:
                    break
                one = draw_case(seed, number, files)
                one = replace(one, store=store or one.store)
                found = judge(one)
                many.add(one, found)
                if found.faults:
                    click.echo(
                        f"case {number}: {_describe(found)}\n  {found.faults[0].name} {found.faults[0].detail[:1000]}"
                    )
                if list(many.failed) == [one.whence]:
                    click.echo(f"making it small ({one.format}, {len(one.files)} files) ...")
                    small, why = shrink(one, found, judge)
                    click.echo(f"{write_counterexample(small, why)}: {_describe(why)}\n  {why.faults[0].detail[:1000]}")
                if many.schemas % 10 == 0:
                    click.echo(f"{many.schemas} schemas, {many.records.total():,} records, {_since(began)}")
            cpu = count_cpu(os.getpid(), server.pid)
            spark.stop()  # it would ask a server that is gone, for minutes
        finally:
            kill(server)
    click.echo("\n".join(("Drawn:", *many.kinds())))
    click.echo(f"Seed {seed}: {many.summary()}. {cpu:.0f} s of CPU, {_since(began)} in all")
    for whence in list(many.failed)[:50]:
        click.echo(f"failed: {whence}")
    sys.exit(bool(many.failed))


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s"


def write_counterexample(case: Case, found: Judgement) -> Path:
    """The folder that a person looks at: the pipeline, its files, and what is wrong."""
    folder = Path(tempfile.mkdtemp(prefix="counterexample-"))
    play.land(case, on_disk(folder) / "land")
    (folder / "pipeline.py").write_text(play.pipeline(case))
    faults = "".join(f"{f.kind} {f.count} {f.key}/{f.name}: {f.detail}\n" for f in found.faults)
    (folder / "faults.txt").write_text(f"{case.whence}\n{faults}", errors="backslashreplace")
    return folder


def _describe(found: Judgement) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(found.counts().items()))


if __name__ == "__main__":
    main()
