"""Measures what exactly-once costs: a batch of rota beside the same plain Spark job, in turn, on one warm Spark.

    python benchmarks/bookkeeping.py [--rows 10000000] [--partitions 8] [--files 8] [--rounds 5] [--format parquet]
                                     [--filter]

raw   plain Spark: read, transform, and write Parquet split by partition, with the two columns that say where each row
      comes from (Spark reads them from the folder names)
rota  the whole run: index, claim, job, footers, commit and checkpoint, into a fresh table
bare  as raw, without the two columns
aside as raw, of text: bad records are told from good ones by every declared column and written into a folder of their own,
      in the same pass. Who does without rota has to do this much for a table in which each record parses

The transform adds and drops columns. Of Parquet, rota compares the footers of what was read with those of what was written.
`--filter` filters as well, with a condition that keeps all rows: then Spark has to count what it reads and what it writes,
by two observations, which cost it time. All run with rota's settings of Spark. raw splits its output by the id as
text, as people do, and rota by a number.

The command prints the least and the median wall time of each, its median CPU time (Spark and Python), rows per second, and
the ratios of rota to raw and to aside. A ratio is the median over all rounds, because single times vary with the machine;
that of CPU time varies less where others work on it. The exit code is 1 if the ratio of wall times to raw is above --bound.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from rota import Pipeline, delta, files
from rota.coordination.group_state import GroupState
from rota.coordination.membership import join
from rota.coordination.ownership import claim_all
from rota.coordination.records import Head, Live, Own, Slot, Slots, encode
from rota.dataplane.spark import session
from rota.record import CORRUPT
from rota.registry import open_ports, open_source
from rota.run.consume import CommittedBatch, consume
from simulator.memory_store import MemoryServer

SCHEMA = "id long, key long, value double, device string"


def change_columns(frame: Any) -> Any:
    """Adds columns by arithmetic and text functions, and drops one."""
    return frame.selectExpr("*", "key % 100 as bucket", "upper(device) as dev").drop("device")


def filter_too(frame: Any) -> Any:
    """Filters as well, with a condition that keeps all rows."""
    return change_columns(frame).where("key >= 0")


def write_files(spark: Any, folder: Path, format: str, rows: int, partitions: int, per: int) -> None:
    """Writes `per` files into each of `partitions` folders."""
    each = rows // (partitions * per)
    for p in range(partitions):
        target = folder / f"k{p}"
        target.mkdir(parents=True)
        for f in range(per):
            first = (p * per + f) * each
            data = spark.range(first, first + each, 1, 1).selectExpr(
                "id", "id % 1000 as key", "cast(id as double) / 3 as value", "concat('dev', id % 77) as device"
            )
            scratch = folder.parent / "scratch"
            data.write.format(format).mode("overwrite").save(str(scratch))
            next(scratch.glob(f"part-*.{'snappy.' if format == 'parquet' else ''}{format}")).rename(
                target / f"{f:04}.{format}"
            )


def build_group(pipeline: Pipeline) -> tuple[MemoryServer, str]:
    """A fresh group in which one worker owns every partition, as its store and the incarnation of the worker."""
    server = MemoryServer()
    tree = GroupState(server.connect(), "bench")
    tree.found()
    worker = join(tree, "w1", Live())
    keys = open_source(pipeline).list_keys()
    partitions = frozenset(pipeline.partition(k) for k in keys)
    tree.update(tree.paths.assign("w1"), Slots, lambda _: Slots(slots=(Slot(epoch=1, partitions=partitions),)))
    tree.update(tree.paths.head, Head, lambda _: Head(epoch=1))
    tree.grow(pipeline.name, keys)
    for p in partitions:
        tree.store.create(tree.paths.own(p), encode(Own()))
        claim_all(tree, worker, {p: 0})
    return server, worker


def make_plain_job(
    spark: Any, transform: Callable[[Any], Any], folder: Path, out: Path, format: str, split: str, aside: bool = False
) -> Callable[[], int]:
    """The job in plain Spark, which splits its output by the column `split`, with `aside` also by whether a record is bad.
    It returns microseconds."""
    schema = f"{SCHEMA}, {f'{CORRUPT} string, ' if aside else ''}partition string, ordinal long"
    splits = ["bad", split] if aside else [split]

    def run() -> int:
        shutil.rmtree(out, ignore_errors=True)
        began = time.monotonic()
        reader = spark.read.schema(schema).format(format).option("columnNameOfCorruptRecord", CORRUPT)
        frame = transform(reader.load(str(folder)))
        frame = frame.withColumn("bad", frame[CORRUPT].isNotNull()) if aside else frame
        frame = frame.drop("ordinal") if split == "partition" else frame.withColumn(split, frame["partition"])
        frame.write.partitionBy(*splits).parquet(str(out))
        return int((time.monotonic() - began) * 1e6)

    return run


def link_files(land: Path, folder: Path) -> Path:
    """Links the files into folders whose names tell Spark the partition and the ordinal."""
    for path in land.glob("*/*"):
        target = folder / f"partition=p-{path.parent.name}" / f"ordinal={int(path.stem)}"
        target.mkdir(parents=True)
        (target / path.name).hardlink_to(path)
    return folder


def read_cpu() -> float:
    """Seconds of CPU time that this process and its Spark have used."""
    here = psutil.Process()
    times = [one.cpu_times() for one in (here, *here.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def make_rota_job(spark: Any, pipeline: Pipeline, out: Path, rows: int) -> Callable[[], int]:
    """The job by `consume`, into a fresh table of a fresh group. It returns microseconds."""

    def run() -> int:
        shutil.rmtree(out, ignore_errors=True)
        server, worker = build_group(pipeline)
        tree = GroupState(server.connect(), "bench")
        partitions = sorted(tree.owned())
        began = time.monotonic()
        ports = open_ports(pipeline, tree.group, tree.meta().id, lambda _: spark)
        events = list(consume(tree, pipeline, worker, partitions, "bench", ports))
        took = int((time.monotonic() - began) * 1e6)
        assert sum(e.rows for e in events if isinstance(e, CommittedBatch)) == rows, events
        return took

    return run


def main() -> int:
    """Measures and prints the times and the ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--files", type=int, default=8, help="of each partition")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--format", choices=["parquet", "json", "csv"], default="parquet")
    parser.add_argument("--filter", action="store_true", help="the transform filters, too")
    parser.add_argument("--bound", type=float, default=1.05)
    given = parser.parse_args()
    transform = filter_too if given.filter else change_columns
    local = SparkSession.builder.master("local[2]").config("spark.driver.memory", "3g")
    spark = session.fit_session(local.getOrCreate())
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        write_files(spark, here / "land", given.format, given.rows, given.partitions, given.files)
        rows = given.rows // (given.partitions * given.files) * given.partitions * given.files
        source = files(str(here / "land"), format=given.format, schema=SCHEMA, settle=0.0)
        pipeline = Pipeline(source=source, table=delta(str(here / "table")), transform=transform, name="p")
        folders = link_files(here / "land", here / "linked")
        jobs = {
            "bare": make_plain_job(spark, transform, folders, here / "bare", given.format, "partition"),
            "raw": make_plain_job(spark, transform, folders, here / "raw", given.format, "split"),
            "rota": make_rota_job(spark, pipeline, here / "table", rows),
        }
        if given.format != "parquet":
            jobs["aside"] = make_plain_job(spark, transform, folders, here / "aside", given.format, "split", aside=True)
        times: dict[str, list[int]] = {name: [] for name in jobs}
        cpu: dict[str, list[float]] = {name: [] for name in jobs}
        for number in range(given.rounds + 1):
            for name in sorted(jobs, reverse=bool(number % 2)):
                used = read_cpu()
                took = jobs[name]()
                if number:
                    times[name].append(took)
                    cpu[name].append(read_cpu() - used)
    least = {name: min(took) / 1e6 for name, took in times.items()}
    for name in times:
        sys.stdout.write(
            f"{name:5} least {least[name]:6.2f} s  median {statistics.median(times[name]) / 1e6:6.2f} s  "
            f"CPU {statistics.median(cpu[name]):6.2f} s  {rows / least[name]:12,.0f} rows/s\n"
        )
    beside: dict[str, float] = {}
    for peer in [name for name in ("raw", "aside") if name in times]:
        ratios = [ours / theirs for ours, theirs in zip(times["rota"], times[peer], strict=True)]
        of_cpu = statistics.median(ours / theirs for ours, theirs in zip(cpu["rota"], cpu[peer], strict=True))
        beside[peer] = statistics.median(ratios)
        sys.stdout.write(
            f"rota / {peer:5} {beside[peer]:.3f} ({min(ratios):.3f} to {max(ratios):.3f}; "
            f"least {least['rota'] / least[peer]:.3f}; CPU {of_cpu:.3f})\n"
        )
    sys.stdout.write(
        f"raw / bare {least['raw'] / least['bare']:.3f}  rows {rows:,}  partitions {given.partitions}  "
        f"files {given.partitions * given.files}  {given.format}{'  filter' * given.filter}  rounds {given.rounds}\n"
    )
    return int(beside["raw"] > given.bound)


if __name__ == "__main__":
    sys.exit(main())
