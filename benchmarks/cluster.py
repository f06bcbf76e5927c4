"""Kills parts of a standalone Spark cluster by kill -9 in the middle of batches: how long until all rows are in the table,
and whether they are right.

    python -m benchmarks.cluster [--write docs/results.md]

The stack of `rota demo --store s3 --spark cluster`: landing folder and tables in a bucket, a master with recovery by a
folder, two Spark workers, and on them two `rota worker`s with an executor of one core each, whose runs Dagster starts. For
each kill eight files land in eight partitions; a Python function takes `NAP` seconds for each of their rows. The kill
happens once both workers have read some of their rows and no row is in the table yet. The benchmark restarts only the Spark
worker and the master; rota, Spark and the master restart all else. After each kill the demo's verifier compares every
landed row with the table.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.costs import describe_machine, format_table
from benchmarks.pages import write_section
from rota.demo.observer import Observer
from rota.demo.verify import verify
from rota.local.bucket import BucketServer
from rota.local.cluster import SparkCluster
from rota.local.folder import StateFolder
from rota.local.stack import Stack
from rota.local.storage import open_below

NAME, KEYS, ROWS, NAP = "kills", 8, 150, 0.01
SESSION = "6"  # seconds
PATIENCE = 400.0  # seconds until a row of the table states that it did not end
PIPELINE = f"""
from rota import Pipeline, delta, files

def transform(frame):
    from pyspark.sql.functions import udf

    def triple(n):
        import time
        time.sleep({NAP})
        return 3 * n

    return frame.withColumn("m", udf(triple, "long")("n"))

pipeline = Pipeline(
    source=files("${{ROTA_LANDING}}/{NAME}", format="csv", schema="n long", options={{"header": "true"}}, settle=0.0),
    table=delta("${{ROTA_TABLES}}/{NAME}"),
    transform=transform,
)
"""


@dataclass(slots=True)
class Place:
    """The stack, its observer, and the number of landed files."""

    stack: Stack
    buckets: BucketServer
    cluster: SparkCluster
    observer: Observer
    landed: int = 0  # files
    parked: set[str] = field(default_factory=set)

    def land(self) -> None:
        """A file in each partition."""
        folder = self.stack.open_landing(NAME)
        for key in range(KEYS):
            first = self.landed * ROWS
            with folder.open_output_stream(f"k{key}/{self.landed // KEYS:06d}.csv") as file:
                file.write("".join(f"{n}\n" for n in ("n", *range(first, first + ROWS))).encode())
            self.landed += 1

    def wait(self, true: Callable[[], object], patience: float = PATIENCE) -> bool:
        """Return whether `true()` was true in time. Records the partitions that are parked meanwhile."""
        until = time.monotonic() + patience
        while not true():
            if time.monotonic() > until:
                return False
            self.observer.observe()
            self.parked |= set(self.observer.tree.parked())
            time.sleep(0.2)
        return True

    def is_in(self) -> bool:
        """Whether the table's log covers each file."""
        return self.observer.count_consumed() >= self.landed

    def wait_for_batches(self) -> bool:
        """Wait until each worker reads a file that landed last, and the table has no row of these files."""
        last = f"{self.landed // KEYS - 1:06d}.csv"

        def read() -> bool:
            lines = self.buckets.list_requests()
            owners, done = self.observer.owners(), self.observer.offsets()
            got = {line.split("/")[-2] for line in lines if line.startswith("s3_GetObject") and line.endswith(last)}
            return {owners[f"{NAME}:{key}"] for key in got} == {*owners.values()} or sum(
                done.values()
            ) > self.landed - KEYS

        return self.wait(read) and self.observer.count_consumed() == self.landed - KEYS

    def find_driver(self, worker: str) -> psutil.Process:
        """The Spark Connect server of a worker."""
        below = psutil.Process(self.stack.children[worker].process.pid).children(recursive=True)
        return next(one for one in below if any("SparkConnectServer" in word for word in one.cmdline()))

    def wait_able(self) -> None:
        """Wait until both workers can work, so that the next kill hits a complete cluster."""
        live = self.observer.tree.live
        if not self.wait(lambda: len([one for one in live() if one.record and not one.record.unable]) == 2):
            raise SystemExit("a worker did not come back")


Kill = Callable[[Place], Callable[[], object] | None]  # kills a part; returns a function that restarts it


def kill_executors(count: int | None) -> Kill:
    """Kill the first `count` executors, or all."""

    def kill(place: Place) -> None:
        for one in place.cluster.find_executors()[:count]:
            one.kill()

    return kill


def kill_spark_worker(place: Place) -> Callable[[], object]:
    """Kill one of the two Spark workers; the other has enough cores."""
    cluster = place.cluster
    cluster.kill("worker-0")
    return lambda: cluster.start_worker("worker-0")


def kill_driver(place: Place) -> None:
    """Kill the driver of w1."""
    place.find_driver("w1").kill()


def kill_master(place: Place) -> Callable[[], object]:
    """Kill the master, and restart it when all rows are in the table."""
    cluster = place.cluster
    cluster.kill("master")
    return cluster.start_master


def kill_master_and_driver(place: Place) -> None:
    """Kill the master and a driver, and restart the master at once, with its state."""
    cluster = place.cluster
    cluster.kill("master")
    place.find_driver("w1").kill()
    cluster.start_master()


KILLS: dict[str, Kill] = {
    "nothing, to compare": lambda _: None,
    "one executor": kill_executors(1),
    "all executors": kill_executors(None),
    "a Spark worker, with its executors": kill_spark_worker,
    "the driver of a worker": kill_driver,
    "the master, which comes back when all rows are in": kill_master,
    "the master, which comes back at once, and a driver": kill_master_and_driver,
    "nothing, after all that": lambda _: None,
}
HEAD = ("kill -9 of", "until all rows are in, s", "rows", "parked", "load")


def strike(place: Place, name: str) -> list[str]:
    """Land files, kill, wait, and return a row of the table."""
    place.parked.clear()
    for _ in range(3):
        place.land()
        if place.wait_for_batches():
            break
        place.wait(place.is_in)
    else:
        raise SystemExit(f"{name}: no batch was caught in its middle")
    began = time.monotonic()
    mend = KILLS[name](place)
    came = place.wait(place.is_in)
    took = f"{time.monotonic() - began:.1f}" if came else f"not in {PATIENCE:g}"
    verdict = verify(place.stack.open_landing(NAME), place.stack.open_tables(NAME), NAME, null="")
    if mend:
        mend()
    place.wait_able()
    said = "right" if verdict.right else f"{verdict.missing} missing, {verdict.duplicates} twice"
    return [name, took, said, str(len(place.parked)), f"{os.getloadavg()[0]:.0f}"]


def play(folder: Path) -> list[list[str]]:
    """All kills, one after the other, on one stack."""
    pipelines = folder / "pipelines"
    pipelines.mkdir()
    (pipelines / f"{NAME}.py").write_text(PIPELINE)
    settings = {"ROTA_PIPELINES": str(pipelines), "ROTA_SESSION_TIMEOUT": SESSION}
    with Stack(StateFolder(folder / "state"), {**os.environ, **settings}) as stack:
        buckets, cluster = stack.start_bucket(), stack.start_cluster()
        hosts = stack.start_zookeeper()
        for worker in ("w1", "w2"):
            stack.start_worker(worker)
        stack.start_dagster(3000)
        with Observer.connect_to(hosts, open_below(stack.open_tables(NAME), "main"), stack.check) as observer:
            place = Place(stack, buckets, cluster, observer)
            place.land()
            if not place.wait(lambda: place.is_in() and len(set(observer.owners().values())) == 2):
                raise SystemExit("the first files are not in the table")
            rows = []
            for name in KILLS:
                rows.append(strike(place, name))
                sys.stderr.write(f"{' | '.join(rows[-1])}\n")
            return rows


def main() -> None:
    """The command."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--write", type=Path, metavar="PAGE")
    given = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-cluster-") as place:
        table = f"{format_table(HEAD, play(Path(place)))}\n\nMeasured on {describe_machine()}."
    sys.stdout.write(f"{table}\n")
    if given.write:
        write_section(given.write, "cluster", table)


if __name__ == "__main__":
    main()
