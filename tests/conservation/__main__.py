"""`python -m tests.conservation --schemas 1000 [--seed N]`: many cases through rota, each judged by the oracle.

The first counterexample is made small and written to a folder. Exit code 1 if there is one."""

import itertools
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click
import psutil

from rota.dataplane.spark import session
from tests.conservation import play
from tests.conservation.case import Case
from tests.conservation.checker import Judged
from tests.conservation.generate import FILES, case
from tests.conservation.shrink import shrunk
from tests.dataplane.world import kill, started


@click.command()
@click.option("--schemas", default=100, show_default=True, help="How many cases: a schema and its files each.")
@click.option("--seed", default=0, show_default=True, help="The number that makes them.")
@click.option("--first", default=0, show_default=True, help="The first case's number.")
@click.option("--files", default=FILES, show_default=True, help="Files of a case.")
def main(schemas: int, seed: int, first: int, files: int) -> None:
    """Judges whether every record of many files is in exactly one table."""
    began = time.monotonic()
    faults: Counter[str] = Counter()
    records: Counter[str] = Counter()
    failed: list[int] = []
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="conservation-") as root:
        server, endpoint = started(Path(root) / "spark")
        try:
            spark = session.open_session(endpoint)

            def judge(one: Case) -> Judged:
                return play.judged(one, Path(root) / str(next(numbers)), endpoint, spark)

            for number in range(first, first + schemas):
                one = case(seed, number, files)
                found = judge(one)
                faults += found.counts()
                records.update(found.records)
                if found.faults:
                    failed.append(number)
                    click.echo(f"case {number}: {_shown(found)}")
                if failed == [number]:
                    click.echo(f"making it small ({one.format}, {len(one.files)} files) ...")
                    small, why = shrunk(one, found, judge)
                    click.echo(f"{written(small, why)}: {_shown(why)}\n  {why.faults[0].detail[:1000]}")
                if (done := number - first + 1) % 10 == 0:
                    click.echo(f"{done} schemas, {sum(records.values()):,} records, {time.monotonic() - began:.0f} s")
            spent = _seconds(psutil.Process()) + _seconds(psutil.Process(server.pid))
        finally:
            kill(server)
    click.echo(
        f"{schemas} schemas of seed {seed}: {sum(records.values()):,} records ({records['good']:,} good, {records['bad']:,} "
        f"bad, {records['either']:,} of either table). Faults in {len(failed)} schemas: {dict(faults) or 'none'}"
        + (f"; cases {', '.join(map(str, failed[:50]))}" if failed else "")
        + f". {spent:.0f} s of CPU, {time.monotonic() - began:.0f} s in all"
    )
    sys.exit(bool(failed))


def _seconds(process: psutil.Process) -> float:
    """CPU of a process and of those that it started."""
    return float(sum(sum(one.cpu_times()[:2]) for one in (process, *process.children(recursive=True))))


def written(case: Case, found: Judged) -> Path:
    """The folder that a person looks at: the pipeline, its files, and what is wrong."""
    folder = Path(tempfile.mkdtemp(prefix="counterexample-"))
    play.land(case, folder)
    (folder / "pipeline.py").write_text(play.pipeline(case))
    faults = "".join(f"{f.kind} {f.count} {f.key}/{f.name}: {f.detail}\n" for f in found.faults)
    (folder / "faults.txt").write_text(f"{case.whence}\n{faults}", errors="backslashreplace")
    return folder


def _shown(found: Judged) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(found.counts().items()))


if __name__ == "__main__":
    main()
