"""Measures a first run on a backlog of small files: seconds between two commits, and peak memory.

    python -m benchmarks.backlog [--partitions 40] [--files 1000] [--job-files 4000]

One run uses a Spark server as a worker does. The defaults make ten jobs of `max_job_files` files. With
--job-files 1000000 it is one job with one commit at its end.
"""

import argparse
import resource
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.bookkeeping import build_group
from rota import Pipeline, delta, files
from rota.consume import CommittedBatch, consume
from rota.coordination.group_state import GroupState
from rota.dataplane.spark import session
from rota.dataplane.spark.spark_server import SparkServer, SparkSettings
from rota.registry import open_ports


def write_files(folder: Path, partitions: int, per: int) -> None:
    """Writes `per` files of one row into each of `partitions` folders."""
    for p in range(partitions):
        (folder / f"k{p:03}").mkdir(parents=True)
        for n in range(per):
            (folder / f"k{p:03}" / f"{n:05}.json").write_text(f'{{"n": {n}, "word": "w{n}"}}\n')


def read_peak_mib(pid: int) -> float:
    """The peak memory of a process in MiB. Linux only."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> int:
    """Prints the seconds from each commit to the next."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=40)
    parser.add_argument("--files", type=int, default=1000, help="of each partition")
    parser.add_argument("--job-files", type=int, default=4000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        write_files(here / "land", given.partitions, given.files)
        source = files(
            str(here / "land"),
            format="json",
            schema="n int, word string",
            settle=0.0,
            max_files=given.files,
            max_job_files=given.job_files,
        )
        pipeline = Pipeline(source=source, table=delta(str(here / "table")), name="p", deadline=float("inf"))
        server = SparkServer("bench", SparkSettings("local[2]"), here / "spark")
        server.start()
        try:
            while not server.ready():
                time.sleep(0.2)
            spark = session.open_session(server.url)
            spark.range(1).count()
            began, commits = time.monotonic(), [0.0]
            store, worker = build_group(pipeline)
            tree = GroupState(store.connect(), "bench")
            commit = ""
            ports = open_ports(pipeline, tree.group, tree.meta().id, lambda _: spark)
            for event in consume(tree, pipeline, worker, sorted(tree.owned()), "bench", ports):
                if isinstance(event, CommittedBatch) and event.commit_id != commit:
                    commit = event.commit_id
                    commits.append(time.monotonic() - began)
            apart = [after - before for before, after in pairwise(commits)]
            written = sum(1 for _ in (here / "table/main/data").glob("*/*/*.parquet"))
            mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            sys.stdout.write(
                f"{given.partitions} partitions of {given.files} files: {len(apart)} commits in {commits[-1]:.0f} s, "
                f"{min(apart):.0f} to {max(apart):.0f} s apart; {written} files written; peak of the run's process "
                f"{mine:.0f} MiB, of its Spark {read_peak_mib(server.pid or 0):.0f} MiB\n"
            )
            spark.stop()
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
