"""What it costs to read files by a list and a lookup in place of links, and what a landing folder in a bucket costs.

    python -m benchmarks.landing [--part lookup | size] [--sizes 1000 100000] [--write]

lookup  the same files on a local disk are read by links, as on a disk, by a list alone, which says of no row where it is
        from, and by a list with the lookup, as in a bucket. The three take turns; the first round of each is not counted.
        Seconds are those of Spark's processor time, which other work on the machine changes little.
        Links and lookup must give every partition and offset its rows; else the exit code is 1.
size    so many objects in a bucket of versitygw, in a thousandth as many prefixes but ten at least: seconds and requests of
        the first look that gives all of them their offsets, of one with nothing new, and of one with a hundred new objects.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from rota.dataplane.files.disk import DiskLanding
from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.files.landing import Shown
from rota.dataplane.files.listed import Listed
from rota.dataplane.spark.session import join_session, open_session
from rota.dataplane.spark.spark_server import SparkServer, SparkSettings
from rota.local.bucket import serve_buckets
from rota.pipeline import Files, Pipeline, delta, files
from rota.record import OFFSET, PARTITION
from rota.registry import open_source

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
MARKS = ("<!-- landing {} -->\n", "<!-- /landing {} -->")
PARTITIONS, NEW = 8, 100
SCHEMA = "n long, s string"


def land(root: Path, format: str, count: int, rows: int) -> dict[str, list[LandedFile]]:
    """So many files, over the partitions in turn, each of so many rows."""
    found: dict[str, list[LandedFile]] = {f"p:k{key}": [] for key in range(PARTITIONS)}
    for number in range(count):
        path = f"k{number % PARTITIONS}/f {number:05}.{format}"
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        numbers = range(number * rows, (number + 1) * rows)
        if format == "parquet":
            pq.write_table(pa.table({"n": numbers, "s": [f"name-{n}" for n in numbers]}), place)
        else:
            line = '{{"n": {0}, "s": "name-{0}"}}\n' if format == "json" else "{0},name-{0}\n"
            place.write_text("".join(line.format(n) for n in numbers))
        found[f"p:k{number % PARTITIONS}"].append(LandedFile(path, place.stat().st_size, 0))
    return found


def measure_lookup(
    spark: SparkSession, clock: Callable[[], float], folder: Path, format: str, count: int, rows: int, rounds: int
) -> list[str]:
    """A row of the table. Exits where a row is under another file than its own."""
    root = folder / format
    landed = land(root, format, count, rows)
    ranges = {p: (0, len(of)) for p, of in landed.items()}
    declared: Files = files(str(root), format=format, schema=SCHEMA)  # type: ignore[arg-type]
    listed = Listed(f"file:{root}", {p: {o: file.path for o, file in enumerate(of)} for p, of in landed.items()})
    disk = DiskLanding(root, folder / "stage")
    number = iter(range(10**6))

    def by_links(use: Callable[[DataFrame], None]) -> None:
        with disk.show(f"{format}{next(number)}", landed, ranges) as links:
            use(identified(links))

    def identified(shown: Shown) -> DataFrame:
        return shown.identify(shown.load(spark, declared, {}))

    ways: dict[str, Callable[[Callable[[DataFrame], None]], None]] = {
        "links": by_links,
        "list": lambda use: use(listed.load(spark, declared, {})),
        "lookup": lambda use: use(identified(listed)),
    }
    wanted = {(p, o): rows for p, of in landed.items() for o in range(len(of))}

    def check(frame: DataFrame) -> None:
        found = {(r[0], r[1]): r[2] for r in frame.groupBy(PARTITION, OFFSET).count().collect()}
        if found != wanted:
            sys.exit(f"{format}: rows are under files that they are not from")

    for name in ("links", "lookup"):
        ways[name](check)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name in random.sample(list(ways), len(ways)):
            began = clock()
            ways[name](lambda frame: frame.write.format("noop").mode("overwrite").save())
            if turn:
                seconds[name].append(clock() - began)
    best = {name: statistics.median(of) for name, of in seconds.items()}
    ratios = [
        statistics.median(a / b for a, b in zip(seconds[name], seconds["links"], strict=True))
        for name in ("list", "lookup")
    ]
    what = f"{format}, {count} files, {count * rows:,} rows"
    return [what, *(f"{best[name]:.2f}" for name in ways), *(f"{ratio:.2f}x" for ratio in ratios)]


def measure_size(folder: Path, count: int) -> list[str]:
    """A row of the table."""
    folder.mkdir()
    with serve_buckets(folder / "server") as server:
        os.environ |= server.environ
        bucket, prefixes = server.make_bucket(), max(10, count // 1000)
        root = server.data / bucket / "land"
        for number in range(count):
            place = root / f"k{number % prefixes:04}" / f"{number:07}.json"
            if number < prefixes:
                place.parent.mkdir(parents=True)
            place.write_bytes(b'{"n": 1}\n')
        declared = files(f"s3://{bucket}/land", format="json", schema="n int")
        source = open_source(Pipeline(declared, delta(str(folder / "table")), name="p"))
        partitions = tuple(f"p:{key}" for key in source.list_keys())

        def look() -> tuple[float, int, int]:
            before, began = server.count_requests(), time.perf_counter()
            ends = source.assign_offsets(partitions)
            return time.perf_counter() - began, server.count_requests() - before, sum(ends.values())

        looks = [look(), look()]
        for number in range(NEW):
            (root / f"k{number % prefixes:04}" / f"!{number:07}.json").write_bytes(b'{"n": 1}\n')
        looks.append(look())
        if [ends for *_, ends in looks] != [count, count, count + NEW]:
            sys.exit(f"{count} objects: offsets are missing, or too many")
    cells = [f"{seconds:.2f} s, {requests:,}" for seconds, requests, _ in looks]
    return [f"{count:,} in {prefixes:,}", *cells]


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def run_lookup(folder: Path, rounds: int) -> str:
    """The table of the part `lookup`."""
    server = SparkServer("landing", SparkSettings("local[2]", {"spark.driver.memory": "1g"}), folder / "spark")
    server.start()
    try:
        while not server.ready():
            time.sleep(0.2)
        spark: Any = join_session(open_session, server.url, None)
        process = psutil.Process(server.pid)

        def read_cpu() -> float:
            return float(sum(process.cpu_times()[:2]))

        shapes = (("parquet", 300, 4000), ("json", 300, 1500), ("csv", 300, 1500), ("json", 3000, 20))
        rows = [measure_lookup(spark, read_cpu, folder / f"{f}{n}", f, n, r, rounds) for f, n, r in shapes]
        spark.stop()
    finally:
        server.stop()
    return format_table(
        ("files", "links, CPU s", "list alone, CPU s", "list and lookup, CPU s", "list / links", "lookup / links"), rows
    )


def run_size(folder: Path, sizes: Sequence[int]) -> str:
    """The table of the part `size`."""
    rows = [measure_size(folder / f"size{size}", size) for size in sizes]
    head = ("objects in prefixes", "all new: seconds, requests", "nothing new", f"{NEW} new")
    return format_table(head, rows)


def main() -> None:
    """Measures and prints; with `--write`, into the page of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("lookup", "size"), action="append")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-landing-") as name:
        folder = Path(name)
        for part in given.part or ("lookup", "size"):
            before = os.getloadavg()[0]
            table = run_lookup(folder, given.rounds) if part == "lookup" else run_size(folder, given.sizes)
            said = f"{table}\nLoad before and after: {before:.1f}, {os.getloadavg()[0]:.1f}.\n"
            sys.stdout.write(f"{said}\n")
            if given.write:
                begin, end = (mark.format(part) for mark in MARKS)
                page = PAGE.read_text()
                head, _, rest = page.partition(begin)
                PAGE.write_text(f"{head}{begin}{said}{end}{rest.partition(end)[2]}")


if __name__ == "__main__":
    main()
