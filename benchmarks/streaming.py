"""Compares rota with Structured Streaming with a trigger of a second: frequent small files, and kills.

    python -m benchmarks.streaming --minutes 3 --kills 5 [--write]

Both get one small file every 3 s over 8 folders, each up to a second late, so that files land at all phases of a poll.
Freshness is the time from a file's rename into its folder until its rows are committed: for rota a version of the table, for
Spark an entry in the log beside its Parquet. Spark reads a file at once, also an incomplete one: files must be renamed into
place. rota with `settle=0` requires the same. By default it waits until a file was unchanged for 2 s.

rota       the stack of `rota up` with two workers, each with a Spark; the worker is killed by kill -9 in the middle of a
           batch, with the default session of 10 s; the other worker takes over.
streaming  one process, killed by kill -9 in the middle of a batch and restarted at once, without a supervisor's pause.

A file that is not committed at the end is an error.
"""

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.costs import describe_machine, format_table
from benchmarks.pages import write_section
from benchmarks.trickle import PARTITIONS, PAUSE, SETTLE, find_moment, play, play_kills, wait_for
from rota.dataplane.spark.spark_server import OPTIONS, SparkSettings

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
JAVA = SparkSettings("local[2]", archive=()).complete(0, Path())[OPTIONS]  # a worker's, but for the archive
RESTS = (0.0, SETTLE)  # `settle` of a pipeline
QUERY = """
import sys
from pyspark.sql import SparkSession
home, java = sys.argv[1:]
quiet = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.extraJavaOptions": java}
spark = SparkSession.builder.master("local[2]").config(map=quiet).getOrCreate()
frame = spark.readStream.schema("n long").json(f"{home}/land/*")
options = {"path": f"{home}/out", "checkpointLocation": f"{home}/mark"}
frame.writeStream.format("parquet").options(**options).trigger(processingTime="1 second").start().awaitTermination()
"""


@dataclass
class Query:
    """A query in a process of its own, over the folder `home`."""

    home: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)
    landed: dict[str, float] = field(default_factory=dict)  # file -> when it was there
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Starts it, or starts it again."""
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", QUERY, str(self.home), JAVA], stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """kill -9 to it and its Java."""
        assert self.process
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def land(self) -> None:
        """One file of ten records, written aside and renamed."""
        number = next(self.numbers)
        path = self.home / "land" / f"k{number % PARTITIONS}" / f"{number:06d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}")
        aside.write_text("".join(json.dumps({"n": 10 * number + i}) + "\n" for i in range(10)))
        aside.rename(path)
        self.landed[path.name] = time.time()

    def feed(self, over: threading.Event) -> None:
        """Lands a file in 3 s."""
        began = time.monotonic()
        for number in itertools.count(1):
            if over.wait(max(0.0, began + find_moment(number, PAUSE) - time.monotonic())):
                return
            self.land()

    def read_begun(self) -> dict[str, int]:
        """File -> the batch that reads it."""
        found = {}
        for log in self._list_log("mark/sources/0"):
            lines = [json.loads(line) for line in log.read_text().splitlines()[1:]]
            found |= {one["path"].rpartition("/")[2]: int(one["batchId"]) for one in lines}
        return found

    def read_commits(self) -> dict[int, float]:
        """Batch -> when it was committed."""
        return {int(log.stem): log.stat().st_mtime for log in self._list_log("out/_spark_metadata")}

    def _list_log(self, folder: str) -> list[Path]:
        names = (self.home / folder).glob("[0-9]*") if (self.home / folder).exists() else ()
        return sorted((one for one in names if one.suffix in ("", ".compact")), key=lambda one: int(one.stem))

    def find_seen(self) -> dict[str, float]:
        """File -> when its rows were committed."""
        commits = self.read_commits()
        return {file: commits[batch] for file, batch in self.read_begun().items() if batch in commits}


@contextmanager
def run_query(folder: Path) -> Iterator[Query]:
    """A query that has consumed its first files."""
    folder.mkdir(parents=True)
    query = Query(folder)
    for _ in range(PARTITIONS):
        query.land()
    query.start()
    try:
        wait_for(lambda: len(query.find_seen()) == PARTITIONS, "Spark's first files")
        yield query
    finally:
        query.kill()


def measure_freshness(folder: Path, minutes: float) -> list[float]:
    """The seconds of each file, sorted."""
    with run_query(folder) as query:
        first, over = set(query.landed), threading.Event()
        feeding = threading.Thread(target=query.feed, args=(over,))
        feeding.start()
        over.wait(60 * minutes)
        over.set()
        feeding.join()
        wait_for(lambda: len(query.find_seen()) == len(query.landed), "Spark's last files")
        seen = query.find_seen()
        return sorted(seen[file] - at for file, at in query.landed.items() if file not in first)


def measure_kills(folder: Path, kills: int) -> list[float]:
    """The seconds from each kill to the next commit, sorted; each in a batch that was begun and not committed."""
    took = []
    with run_query(folder) as query:
        over = threading.Event()
        feeding = threading.Thread(target=query.feed, args=(over,))
        feeding.start()
        try:
            for _ in range(kills):
                wait_for(lambda: set(query.read_begun().values()) - query.read_commits().keys(), "a batch under way")
                known, at = set(query.read_commits()), time.time()
                query.kill()
                if set(query.read_commits()) - known:  # it was committed first
                    known = set(query.read_commits())
                query.start()
                wait_for(lambda known=known: query.read_commits().keys() - known, "the next commit")  # type: ignore[misc]
                took.append(min(when for batch, when in query.read_commits().items() if batch not in known) - at)
            landed = set(query.landed)  # a batch that a kill left begun may wait until another file comes
            wait_for(lambda: landed <= query.find_seen().keys(), "Spark's last files")
        finally:
            over.set()
            feeding.join()
    return sorted(took)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows, before, parts = [], os.getloadavg()[0], ""
    with tempfile.TemporaryDirectory(prefix="rota-streaming-") as name:
        folder = Path(name)
        if given.minutes:
            theirs = measure_freshness(folder / "query", given.minutes)
            mine = {settle: play(folder / f"trickle{settle:g}", given.minutes, settle=settle) for settle in RESTS}
            for q in (50, 90, 95):
                ours = [settle + one.figures[f"freshness p{q}, s"] for settle, one in mine.items()]
                shown = (*ours, theirs[q * len(theirs) // 100])
                rows.append([f"freshness p{q}, s", *(f"{one:.1f}" for one in shown)])
            worst = [settle + one.figures["freshness, worst, s"] for settle, one in mine.items()]
            rows.append(["freshness, worst s", *(f"{one:.1f}" for one in (*worst, theirs[-1]))])
            sys.stderr.write(f"{rows}\n")  # what follows may fail
        if given.kills:
            again = measure_kills(folder / "killed", given.kills)
            killed = play_kills(folder / "kills", given.kills)
            ended = [one.seconds for one in killed]
            legs = {leg: statistics.median(one.legs[leg] for one in killed) for leg in killed[0].legs}
            parts = f"Of a kill with rota, medians: {', '.join(f'{leg} {s:.1f}' for leg, s in legs.items())}. "
            for what, of in (("median", statistics.median), ("worst", max)):
                rows.append([f"kill to next commit, {what} s", "", f"{of(ended):.1f}", f"{of(again):.1f}"])
    head = ["", *(f"rota, `settle={one:g}`" for one in RESTS), "Structured Streaming"]
    said = (
        f"{format_table(head, rows)}\n\n{given.minutes:g} minutes, {given.kills} kills. {parts}"
        f"Load before: {before:.1f}; {describe_machine()}."
    )
    sys.stdout.write(f"{said}\n")
    if given.write:
        write_section(PAGE, "beside streaming", said)


if __name__ == "__main__":
    main()
