"""What it costs to know the file of each row.

    python -m benchmarks.landing [--rounds 7] [--write]

Files on a local disk are read by a list alone, without the origin of a row, and by a list with the lookup; these write
nowhere. Then they are read and written as a batch is: without a transform, by the names of the list, as a job goes row by
row, and by the lookup, as any other job goes; and joined with a table of eight rows, by the lookup. All take turns; the
first two rounds are not counted. Seconds are those of the processors that Spark and its Python take, which other work on
the machine changes little. The lookup must give every partition and offset its rows; else the exit code is 1.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.pages import write_section
from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.files.listed import Listed
from rota.dataplane.spark.session import join_session, open_session
from rota.dataplane.spark.spark_server import SparkServer, SparkSettings
from rota.dataplane.spark.writing import write
from rota.pipeline import Files, files
from rota.record import OFFSET, PARTITION

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
MARK = "landing lookup"
PARTITIONS = 8
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
    listed = Listed.of(f"file://{root}", landed, ranges)
    number = iter(range(10**6))

    def by_lookup(use: Callable[[DataFrame], None]) -> None:
        use(listed.identify(listed.load(spark, declared, {})))

    def drop(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def keep(frame: DataFrame, named: Mapping[str, tuple[str, int]] | None = None) -> None:
        table, path = str(folder / "table"), f"data/{format}{next(number)}"
        write(frame, table, path, counted=True, known=ranges, named=named)

    def join(frame: DataFrame) -> None:
        few = spark.range(8).selectExpr("id as m", "concat('kind-', id) as kind")
        keep(frame.join(few.hint("broadcast"), frame["n"] % 8 == few["m"]).drop("m"))

    jobs: dict[str, Callable[[], None]] = {
        "list": lambda: drop(listed.load(spark, declared, {})),
        "lookup": lambda: by_lookup(drop),
        "batch by names": lambda: by_lookup(lambda frame: keep(frame, listed.named)),
        "batch by lookup": lambda: by_lookup(keep),
        "joined by lookup": lambda: by_lookup(join),
    }
    wanted = {(p, o): rows for p, of in landed.items() for o in range(len(of))}

    def check(frame: DataFrame) -> None:
        found = {(r[0], r[1]): r[2] for r in frame.groupBy(PARTITION, OFFSET).count().collect()}
        if found != wanted:
            sys.exit(f"{format}: rows are under files that they are not from")

    by_lookup(check)
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds + 2):
        for name in random.sample(list(jobs), len(jobs)):
            began = clock()
            jobs[name]()
            if turn > 1:
                seconds[name].append(clock() - began)
    best = {name: statistics.median(of) for name, of in seconds.items()}
    ratios = [
        statistics.median(a / b for a, b in zip(seconds[name], seconds[other], strict=True))
        for name, other in (
            ("lookup", "list"),
            ("batch by lookup", "batch by names"),
        )
    ]
    what = f"{format}, {count} files, {count * rows:,} rows"
    return [what, *(f"{best[name]:.2f}" for name in jobs), *(f"{ratio:.2f}x" for ratio in ratios)]


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def run_lookup(folder: Path, rounds: int) -> str:
    """The table."""
    server = SparkServer("landing", SparkSettings("local[2]", {"spark.driver.memory": "1g"}), folder / "spark")
    server.start()
    try:
        while not server.ready():
            time.sleep(0.2)
        spark: Any = join_session(open_session, server.url, None)
        process = psutil.Process(server.pid)

        def read_cpu() -> float:
            return float(sum(sum(one.cpu_times()[:2]) for one in (process, *process.children(recursive=True))))

        shapes = (("parquet", 300, 4000), ("json", 300, 1500), ("csv", 300, 1500), ("json", 3000, 20))
        rows = [measure_lookup(spark, read_cpu, folder / f"{f}{n}", f, n, r, rounds) for f, n, r in shapes]
        spark.stop()
    finally:
        server.stop()
    return format_table(
        (
            "files", "list alone, CPU s", "lookup", "batch by names", "by lookup", "joined by lookup", "lookup / list",
            "batch by lookup / names",
        ),
        rows,
    )  # fmt: skip


def main() -> None:
    """Measures and prints; with `--write`, into the page of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="rota-landing-") as name:
        table = run_lookup(Path(name), given.rounds)
    said = f"{table}\nLoad before and after: {before:.1f}, {os.getloadavg()[0]:.1f}."
    sys.stdout.write(f"{said}\n")
    if given.write:
        write_section(PAGE, MARK, said)


if __name__ == "__main__":
    main()
