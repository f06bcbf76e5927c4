"""Compares rota with its alternatives: Structured Streaming with its file source, and plain Spark.

    python -m benchmarks.beside --rows 20000000 [--store disk bucket] [--format csv quoted] [--cluster] [--write]

All read the same files, in 64 partitions of which the first is 64 times as large as the last, and write Parquet. rota takes
turns with one peer after the other. Each system has its own Spark Connect server with a worker's settings and two cores, so
that Java compiles only the code of one system. (`--cluster`: all systems on one application, with two Spark workers of one
core each.) Before the turns, both systems read all files once, which is not counted: a worker's Spark is warm.

rota       the shipped run, in this process: an index of files, 64 partitions that one worker claimed on a real ZooKeeper,
           each row with its partition and offset, commits under a token in a Delta table. Without Dagster.
streaming  `readStream` of all folders, trigger `availableNow`, into Parquet with its log and a checkpoint in the same store.
plain      one job: read everything, write everything. It stores no progress: a second job reads everything again.
split      plain, with the provenance of rota's rows: two columns for the origin, and a folder for each partition.

pyarrow counts the rows of each result, and the sum of a column. If they differ from the landed rows, the exit code is 1. The
bucket's server counts requests. CPU seconds are of this process and of all Java and Python below it: on a machine with other
work they are more exact than the clock.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.costs import describe_machine, format_table
from benchmarks.pages import write_section
from rota import stores
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.dataplane.spark.session import join_session, open_session
from rota.dataplane.spark.spark_server import SparkServer, SparkSettings
from rota.group.agent import Agent
from rota.group.rebalance import rebalance
from rota.local.bucket import BucketServer, serve_buckets
from rota.local.cluster import SparkCluster
from rota.pipeline import Pipeline, delta, files
from rota.registry import open_ports, open_source
from rota.run.consume import CommittedBatch, consume

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
PARTITIONS, FILE = 64, 50_000  # rows of a file at most
SCHEMA = "n long, shop string, price double"
SESSION = 10.0  # seconds
GOAL = {"streaming": 1.0, "plain": 0.95, "split": 0.95}  # rota's rows a second, times those of the peer
SYSTEMS = ("rota", *GOAL)
FORMATS = ("parquet", "csv", "quoted", "json")
OPTIONS = {"escape": '"'}  # of `quoted`, CSV with commas and doubled quotes in every fourth record; rota's own default
Written = Callable[[], list[str]]


def name_format(format: str) -> str:
    """Return Spark's name of a format of this benchmark."""
    return "csv" if format == "quoted" else format


def share(rows: int) -> list[int]:
    """Return the rows of each partition: the k-th has a k-th of the rows of the first."""
    weights = [1 / (k + 1) for k in range(PARTITIONS)]
    found = [int(rows * one / sum(weights)) for one in weights]
    found[0] += rows - sum(found)
    return found


def write_files(root: Path, format: str, rows: int) -> None:
    """Land `rows` rows below the root, numbered by the column `n`."""
    first = 0
    for key, count in enumerate(share(rows)):
        folder = root / f"k{key:02}"
        folder.mkdir(parents=True)
        for number, at in enumerate(range(0, count, FILE)):
            n = np.arange(first + at, first + min(at + FILE, count), dtype=np.int64)
            shops = np.char.add("shop-", (n % 5000).astype(str))
            table = pa.table({"n": n, "shop": shops, "price": (n % 100_000) / 100})
            _write(table, folder / f"{number:05}.{name_format(format)}", format)
        first += count


def _write(table: pa.Table, file: Path, format: str) -> None:
    if format == "parquet":
        pq.write_table(table, file)
    elif format == "csv":
        pc_csv.write_csv(table, file, pc_csv.WriteOptions(include_header=False, quoting_style="none"))
    columns = zip(*(column.to_pylist() for column in table.columns), strict=True)
    if format == "quoted":
        file.write_text("".join(f"{n},{s},{p}\n" if n % 4 else f'{n},"{s}, ""east""",{p}\n' for n, s, p in columns))
    elif format == "json":
        file.write_text("".join(f'{{"n": {n}, "shop": "{s}", "price": {p}}}\n' for n, s, p in columns))


@dataclass(frozen=True)
class Place:
    """The place of files and tables: `at` is a folder or `s3://bucket`; `spark` is its name for Spark."""

    name: str
    at: str
    spark: str
    server: BucketServer | None = None

    @property
    def inside(self) -> str:
        """The place without its scheme."""
        return self.at.removeprefix("s3://")

    def count_requests(self) -> int:
        """Return the number of requests that the bucket's server answered."""
        return self.server.count_requests() if self.server else 0

    def count(self, files: Sequence[str]) -> tuple[int, int]:
        """Rows of Parquet files, by their paths below the place, and the sum of `n`."""
        columns = ds.dataset(list(files), filesystem=stores.open_files(self.at), format="parquet").to_table(["n"])
        return columns.num_rows, pc.sum(columns["n"]).as_py() or 0


@dataclass
class Stage:
    """The Spark, the ZooKeeper and the place of a system. A reading method returns a function that lists the written files,
    whose names have one of the `numbers`. The files to read are in the folder with the name of their format."""

    spark: Any
    url: str
    hosts: str
    place: Place
    numbers: Iterator[int]

    def read_plain(self, format: str) -> Written:
        """Plain Spark."""
        out = f"out{next(self.numbers)}"
        self._read_all(format).write.parquet(f"{self.place.spark}/{out}")
        return lambda: self._list_parquet(out)

    def read_split(self, format: str) -> Written:
        """Plain Spark, with the provenance of each row."""
        from pyspark.sql import functions as F  # noqa: N812

        out, frame = f"out{next(self.numbers)}", self._read_all(format)
        parts = F.split(frame.metadataColumn("_metadata")["file_path"], "/")
        key, number = F.element_at(parts, -2), F.substring(F.element_at(parts, -1), 1, 5).cast("long")
        placed = frame.select("*", key.alias("_partition"), number.alias("_offset"), key.alias("split"))
        placed.write.partitionBy("split").parquet(f"{self.place.spark}/{out}")
        return lambda: self._list_parquet(out)

    def _read_all(self, format: str) -> Any:
        return self._declare(self.spark.read, format).load(f"{self.place.spark}/{format}/*")

    def _declare(self, reader: Any, format: str) -> Any:
        return reader.schema(SCHEMA).format(name_format(format)).options(**OPTIONS if format == "quoted" else {})

    def read_streaming(self, format: str) -> Written:
        """Structured Streaming; only files in its log count."""
        out, mark = f"out{next(self.numbers)}", f"mark{next(self.numbers)}"
        frame = self._declare(self.spark.readStream, format).load(f"{self.place.spark}/{format}/*")
        options = {"path": f"{self.place.spark}/{out}", "checkpointLocation": f"{self.place.spark}/{mark}"}
        query = frame.writeStream.format("parquet").options(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        return lambda: self._list_logged(out)

    def _list_logged(self, out: str) -> list[str]:
        logged = stores.open_files(self.place.at)
        names = {file.rpartition("/")[2]: file for file in self._list_parquet(out)}
        found = set()
        for info in logged.get_file_info(pa.fs.FileSelector(f"{out}/_spark_metadata")):
            text = logged.open_input_file(info.path).read().decode() if info.extension != "crc" else ""
            found |= {json.loads(line)["path"].rpartition("/")[2] for line in text.splitlines()[1:]}
        return [names[one] for one in found]

    def _list_parquet(self, folder: str) -> list[str]:
        there = stores.open_files(self.place.at).get_file_info(pa.fs.FileSelector(folder, recursive=True))
        return [one.path for one in there if one.path.endswith(".parquet") and "/_temporary/" not in one.path]

    def read_by_rota(self, format: str) -> Written:
        """The shipped run."""
        table = f"{self.place.at}/table{next(self.numbers)}"
        form: Any = name_format(format)
        source = files(f"{self.place.at}/{format}", format=form, schema=SCHEMA, settle=0)
        pipeline = Pipeline(source, delta(table), name=f"p{uuid.uuid4().hex[:8]}", group=f"g{uuid.uuid4().hex[:8]}")
        with self._claim(pipeline) as (tree, incarnation, partitions):
            ports = open_ports(pipeline, pipeline.group, tree.meta().id, connect=lambda _: self.spark)
            done = True
            while done:
                events = list(consume(tree, pipeline, incarnation, partitions, uuid.uuid4().hex, ports))
                done = any(isinstance(event, CommittedBatch) and not event.healed for event in events)
        return lambda: self._list_table(f"{table}/main")

    def _list_table(self, main: str) -> list[str]:
        log = DeltaTable(main, storage_options=stores.choose_options(main))
        return [uri[uri.index(self.place.inside) + len(self.place.inside) + 1 :] for uri in log.file_uris()]

    @contextmanager
    def _claim(self, pipeline: Pipeline) -> "Iterator[tuple[GroupState, str, list[str]]]":
        """A group of one worker, which has claimed all partitions."""
        with connect(self.hosts, SESSION) as store:
            tree = GroupState(store, pipeline.group)
            tree.found()
            tree.grow(pipeline.name, open_source(pipeline).list_keys())
            live = Live(endpoint=self.url)
            agent = Agent(tree, "w1", live, lambda *_, **__: None, max_shutdown=120.0, session_timeout=SESSION)
            partitions = list(tree.ids())
            while not agent.state.incarnation or any(
                own.incarnation != agent.state.incarnation for own in tree.owned(partitions).values()
            ):
                for _ in agent.cycle():
                    pass
                if agent.state.incarnation and not tree.head().record.epoch:
                    rebalance(tree, "benchmark")
            yield tree, agent.state.incarnation, partitions


@contextmanager
def open_place(name: str, folder: Path) -> Iterator[Place]:
    """Yield a folder, or a bucket of a new server, to which this process and its children have credentials."""
    if name == "disk":
        yield Place(name, str(folder), f"file:{folder}")
        return
    with serve_buckets(folder / "server") as server:
        os.environ |= server.environ
        bucket = server.make_bucket()
        yield Place(name, f"s3://{bucket}", f"s3a://{bucket}", server)


@contextmanager
def open_spark(folder: Path, place: Place, master: str, name: str) -> Iterator[tuple[Any, str]]:
    """A session of a worker's server, and the address. In a bucket the session configures Hadoop for the peers."""
    hadoop = (
        {f"spark.hadoop.{name}": value for name, value in stores.describe_to_spark().items()} if place.server else {}
    )
    conf = {"spark.driver.memory": "2g", "spark.executor.memory": "1g", "spark.driver.host": "127.0.0.1", **hadoop}
    server = SparkServer(f"beside-{place.name}-{name}", SparkSettings(master, conf), folder / f"spark-{name}")
    server.start()
    try:
        while not (server.ready() and not server.explain_unable()):
            time.sleep(0.2)
        spark = join_session(open_session, server.url, None)
        yield spark, server.url
        spark.stop()
    finally:
        server.stop()


def upload(place: Place, landing: str, files_below: Path) -> None:
    """Land the files below a folder of this machine."""
    if not place.server:
        files_below.rename(Path(place.at) / landing)
        return
    objects = stores.open_objects(f"{place.at}/{landing}")
    for file in sorted(files_below.rglob("*.*")):
        objects.put(str(file.relative_to(files_below)), file)


@dataclass(frozen=True)
class Took:
    """The cost of one run of a system: seconds, CPU seconds, requests."""

    seconds: float
    cpu: float
    requests: int


@dataclass(frozen=True)
class Pair:
    """The cost of rota, and of the peer after it."""

    mine: Took
    its: Took


def read_cpu() -> float:
    """Return the CPU seconds so far."""
    total = 0.0
    for process in (me := psutil.Process(), *me.children(recursive=True)):
        try:
            if process == me or process.name().startswith(("java", "python")):
                total += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return total


def measure(
    open_stage: Callable[[str], AbstractContextManager[Stage]], place: Place, format: str, rows: int, rounds: int
) -> Mapping[str, Sequence[Pair]]:
    """Return peer -> the costs of rota and of the peer, turn by turn. Exits if a system lost or doubled a row."""
    found: dict[str, Sequence[Pair]] = {}
    for peer in GOAL:
        with open_stage("rota") as mine, open_stage(peer) as its:
            ways = {
                "rota": mine.read_by_rota,
                "streaming": its.read_streaming,
                "plain": its.read_plain,
                "split": its.read_split,
            }
            turns = []
            for turn in range(rounds + 1):
                took = [time_one(ways[name], place, format, rows, f"{name}, round {turn}") for name in ("rota", peer)]
                turns.append(Pair(*took))
            found[peer] = turns[1:]
    return found


def time_one(way: Callable[[str], Written], place: Place, format: str, rows: int, what: str) -> Took:
    """Return the cost of one system for these rows. Exits unless it wrote each row once."""
    before, spent, began = place.count_requests(), read_cpu(), time.perf_counter()
    written = way(format)
    took = Took(time.perf_counter() - began, read_cpu() - spent, place.count_requests() - before)
    found = place.count(written())
    if found != (rows, rows * (rows - 1) // 2):
        sys.exit(f"{what} of {format} in {place.name}: {found} rows and sum, of {rows:,}")
    sys.stderr.write(f"{place.name} {format} {what}: {took}\n")
    return took


def format_row(format: str, rows: int, turns: Mapping[str, Sequence[Pair]]) -> list[str]:
    """Return a row of the table: medians; the ratios are medians of the ratios of each turn."""
    took = {"rota": [one.mine for of in turns.values() for one in of]}
    took |= {peer: [one.its for one in of] for peer, of in turns.items()}
    median = statistics.median
    speeds = [f"{rows / median(one.seconds for one in of):,.0f}" for of in took.values()]
    ratios = [f"{median(one.its.seconds / one.mine.seconds for one in of):.2f}" for of in turns.values()]
    cpu = [f"{median(one.its.cpu / one.mine.cpu for one in of):.2f}" for of in turns.values()]
    asked = [f"{median(one.requests for one in of):,.0f}" for of in took.values() if any(o.requests for o in of)]
    return [format, *speeds, *ratios, *cpu, *asked]


def main() -> None:
    """Measures and prints; with `--write`, into the page of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", nargs="+", choices=("disk", "bucket"), default=["disk", "bucket"])
    parser.add_argument("--format", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-beside-") as name, ExitStack() as stack:
        folder = Path(name)
        zookeeper = stack.enter_context(EmbeddedZooKeeper(folder / "zookeeper"))
        for store in given.store:
            (folder / store).mkdir()
            said = measure_store(store, folder / store, zookeeper.hosts, given)
            sys.stdout.write(f"{said}\n")
            if given.write:
                write_section(
                    PAGE, f"beside {store}{' cluster' * given.cluster}{' quoted' * (given.format == ['quoted'])}", said
                )


def measure_store(store: str, folder: Path, hosts: str, given: argparse.Namespace) -> str:
    """All formats in one store, as a table."""
    lines, before, numbers = [], os.getloadavg()[0], iter(range(10**6))
    with open_place(store, folder) as place, ExitStack() as stack:
        cluster = stack.enter_context(SparkCluster(folder / "cluster", cores=1)) if given.cluster else None
        shared = stack.enter_context(open_spark(folder, place, cluster.url, "all")) if cluster else None

        @contextmanager
        def open_stage(system: str) -> Iterator[Stage]:
            own = nullcontext(shared) if shared else open_spark(folder, place, "local[2]", system)
            with own as (spark, url):
                yield Stage(spark, url, hosts, place, numbers)

        for format in given.format:
            write_files(folder / "made" / format, format, given.rows)
            upload(place, format, folder / "made" / format)
            lines.append(format_row(format, given.rows, measure(open_stage, place, format, given.rows, given.rounds)))
    head = ["format", *(f"{one}, rows/s" for one in SYSTEMS)]
    head += [f"rota / {peer} (goal {goal:g})" for peer, goal in GOAL.items()]
    head += [f"rota / {peer} by CPU" for peer in GOAL]
    head += [f"requests, {one}" for one in SYSTEMS] if place.server else []
    where = "a standalone cluster of two Spark workers with a core each" if given.cluster else "a `local[2]` each"
    return (
        f"{format_table(head, lines)}\n\n{given.rows:,} rows in {PARTITIONS} partitions, rounds: {given.rounds}, on "
        f"{where}. Load before: {before:.1f}; {describe_machine()}."
    )


if __name__ == "__main__":
    main()
