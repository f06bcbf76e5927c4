"""Measures what a scrape of `rota export` costs.

    python -m benchmarks.scrape --partitions 1000 --scrapes 20 --every 15

The group has 10 workers without Spark on one real ZooKeeper, a landing folder of two files for each partition, and a table
that consumed the first of them. Dagster's page does not run. Measured are CPU seconds of the exporter, all of its threads,
from one scrape to the last, and the seconds and bytes of a scrape.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from statistics import median

import click

from benchmarks.crowd import live_as, read_cpu
from rota.catalog import load
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.records import Checkpoint, encode
from rota.coordination.store import Create
from rota.dataplane.ports import ASSIGN
from rota.group.rebalance import rebalance
from rota.ledger.values import Batch
from rota.machine import free_port
from rota.pipeline import Pipeline
from rota.registry import open_source, open_tables

GROUP, WORKERS, FILES, BATCH = "default", 10, 2, 100
FILE = """
from rota import Pipeline, delta, files
source = files({land!r}, format="json", schema="n int", settle=0.0)
pipeline = Pipeline(source=source, table=delta({table!r}))
"""


def land(folder: Path, partitions: int) -> Pipeline:
    """Land the files. Returns the pipeline that reads them."""
    for number in range(partitions):
        here = folder / "land" / f"{number:05}"
        here.mkdir(parents=True)
        for file in range(FILES):
            (here / f"{file}.json").write_text('{"n": 1}\n')
    (folder / "pipelines").mkdir()
    text = FILE.format(land=str(folder / "land"), table=str(folder / "table"))
    (folder / "pipelines" / "orders.py").write_text(text)
    return load(folder / "pipelines").pipelines["orders"]


def found(tree: GroupState, pipeline: Pipeline) -> tuple[str, ...]:
    """Found the group, and let its workers claim all partitions, which are returned."""
    keys = open_source(pipeline).list_keys()
    tree.found()
    tree.grow(pipeline.name, keys)
    for number in range(WORKERS):
        words = f"w{number}", tree.store.hosts, tree.group  # type: ignore[attr-defined]
        threading.Thread(target=live_as, args=words, daemon=True).start()
    while len(tree.live()) < WORKERS:
        time.sleep(0.1)
    rebalance(tree, "scrape")
    while not all(own.incarnation for own in tree.owned().values()):
        time.sleep(0.1)
    return tuple(map(pipeline.partition, keys))


def consume(tree: GroupState, pipeline: Pipeline, partitions: tuple[str, ...]) -> None:
    """Commit the first file of each partition, without Spark: the commits name no data files."""
    open_source(pipeline).observe(partitions, ASSIGN)
    main = open_tables(pipeline, tree.group, tree.meta().id).main
    owns = tree.owned(partitions)
    for number, start in enumerate(range(0, len(partitions), BATCH)):
        some = partitions[start : start + BATCH]
        claimed = main.claim({p: owns[p].token for p in some}, dict.fromkeys(some, 0))
        ranges = dict.fromkeys(some, (0, 1))
        main.commit(claimed, Batch(f"c{number}", "r", "w", "a", 1, ranges, rows=dict.fromkeys(some, 1)))
        records = [Checkpoint(offset=1, token=owns[p].token, run_id="r", table=claimed.table, rows=1) for p in some]
        paths = map(tree.paths.checkpoint, some)
        tree.store.multi([Create(path, encode(one)) for path, one in zip(paths, records, strict=True)])


def measure(folder: Path, hosts: str, scrapes: int, every: float) -> str:
    """Scrape an exporter of its own. Returns what it costs, in a line."""
    port = free_port()
    environ = {**os.environ, "ROTA_ZOOKEEPER": hosts, "ROTA_PIPELINES": str(folder / "pipelines")}
    command = [sys.executable, "-m", "rota", "export", "--port", str(port)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as exporter:
        assert exporter.stdout
        exporter.stdout.readline()

        def scrape() -> tuple[float, bytes]:
            began = time.monotonic()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                text = answer.read()
            return time.monotonic() - began, text

        first, _ = scrape()
        time.sleep(every)
        scrape()
        before, seconds, text = read_cpu(exporter.pid), list[float](), b""
        for _ in range(scrapes):
            time.sleep(every)
            took, text = scrape()
            seconds.append(took)
        spent = (read_cpu(exporter.pid) - before) / scrapes
        memory = int(Path(f"/proc/{exporter.pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024
        exporter.terminate()
    return (
        f"{1000 * spent:.0f} ms of CPU a scrape, {spent / every:.2%} of a core at one each {every:g} s; a scrape takes "
        f"{1000 * median(seconds):.0f} ms (the first {1000 * first:.0f} ms) and has {len(text):,} bytes, "
        f"{text.count(b'rota_lag_offsets{')} partitions with a lag; {memory:.0f} MB resident"
    )


@click.command()
@click.option("--partitions", "counts", multiple=True, default=[1000], show_default=True)
@click.option("--scrapes", default=20, show_default=True)
@click.option("--every", default=15.0, show_default=True, help="Seconds between two scrapes.")
def main(counts: tuple[int, ...], scrapes: int, every: float) -> None:
    """Print a line for each number of partitions."""
    for partitions in counts:
        with tempfile.TemporaryDirectory() as place, EmbeddedZooKeeper(Path(place) / "zookeeper") as server:
            folder = Path(place)
            pipeline = land(folder, partitions)
            with connect(server.hosts, 60.0) as store:
                tree = GroupState(store, GROUP)
                consume(tree, pipeline, found(tree, pipeline))
                click.echo(f"{partitions:,} partitions: {measure(folder, server.hosts, scrapes, every)}")


if __name__ == "__main__":
    main()
