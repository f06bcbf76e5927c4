"""A trickle: one small file in 3 s over 8 partitions, two workers, on the stack of `rota up` in a folder of its own.

    python benchmarks/trickle.py --minutes 10

First the stack stands idle: the processor time of all its processes (ZooKeeper, daemon, page, code server, two workers with
Spark) is counted. Then files land. Printed: runs and megabytes of Dagster's storage an hour, and freshness: the time from a
file's rename into the landing folder until its rows are in a version of the table, without `settle` (2 s), in which a file
rests. The count of materializations and events says what is written for it. Files that are not in the table in the end are
an error.
"""

import argparse
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import psutil

from rota.demo import deltalog
from rota.demo.verify import ranges
from rota.local.folder import StateFolder
from rota.local.stack import SPARK_OPTIONS, Stack

SETTLE, PAUSE, PARTITIONS = 2.0, 3.0, 8
TOLD = "dagster_event_type = 'ASSET_MATERIALIZATION'"
PIPELINE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files("${ROTA_LANDING}/trickle", format="json", schema="n long"), table=delta("${ROTA_TABLES}/trickle"),
)
"""


def land(folder: Path, number: int) -> float:
    """One file of ten records, written aside and renamed; when it was there."""
    path = folder / f"k{number % PARTITIONS}" / f"{number:06d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}")
    aside.write_text("".join(json.dumps({"n": 10 * number + i}) + "\n" for i in range(10)))
    aside.rename(path)
    return time.time()


def read_commits(main: Path, since: int) -> Iterator[tuple[int, float, Mapping[str, tuple[int, int]]]]:
    """Version, time and offset ranges of each commit after `since`."""
    for commit in deltalog.commits(main, since) if deltalog.exists(main) else ():
        yield commit.version, commit.at, ranges(commit)


def count_cpu() -> float:
    """Processor seconds of all descendants of this process, ended ones that were waited for included."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def count_bytes(folder: Path) -> int:
    """Bytes of all files below the folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def count_runs(home: Path, where: str = "1") -> int:
    """Dagster's runs."""
    return _count(home / "history" / "runs.db", "runs", where)


def count_events(home: Path, where: str = "1") -> int:
    """Dagster's events of assets."""
    return _count(home / "history" / "runs" / "index.db", "event_logs", where)


def _count(file: Path, table: str, where: str) -> int:
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as base:
        return int(base.execute(f"SELECT COUNT(*) FROM {table} WHERE {where}").fetchone()[0])


def wait_for(true: Callable[[], object], what: str, timeout: float = 180.0) -> None:
    """Returns once `true()` is."""
    deadline = time.monotonic() + timeout
    while not true():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {timeout:g} s for {what}")
        time.sleep(0.3)


def play(folder: Path, minutes: float, idle: float) -> dict[str, float]:
    """Starts everything, measures it idle and trickling, ends it."""
    pipelines = folder / "pipelines"
    pipelines.mkdir()
    (pipelines / "trickle.py").write_text(PIPELINE)
    with Stack(StateFolder(folder / "state"), {**os.environ, "ROTA_PIPELINES": str(pipelines)}) as stack:
        landing, main = stack.state.landing / "trickle", stack.state.tables / "trickle" / "main"
        home, numbers = stack.state.dagster, count()
        stack.start_zookeeper()
        for worker in ("w1", "w2"):
            stack.start_worker(worker, *SPARK_OPTIONS)
        wait_for(stack.start_dagster(3000).answers, "Dagster's page")
        for _ in range(PARTITIONS):
            land(landing, next(numbers))
        wait_for(lambda: len(list(find_seen(main, -1))) >= PARTITIONS, "the first files")
        wait_for(lambda: not count_runs(home, "status IN ('QUEUED', 'STARTING', 'STARTED')"), "the first runs to end")
        runs, cpu, began = count_runs(home), count_cpu(), time.monotonic()
        time.sleep(idle)
        figures = {
            "idle cpu, % of a core": 100 * (count_cpu() - cpu) / (time.monotonic() - began),
            "idle runs": float(count_runs(home) - runs),
        }
        version = max(v for v, _, _ in read_commits(main, -1))
        runs, events, told, size = count_runs(home), count_events(home), count_events(home, TOLD), count_bytes(home)
        landed: dict[tuple[str, int], float] = {}
        cpu, began = count_cpu(), time.monotonic()
        while time.monotonic() - began < 60 * minutes:
            number = next(numbers)
            landed[f"trickle:k{number % PARTITIONS}", number // PARTITIONS] = land(landing, number)
            time.sleep(max(0.0, began + PAUSE * len(landed) - time.monotonic()))
        hours = (time.monotonic() - began) / 3600
        busy = 100 * (count_cpu() - cpu) / (3600 * hours)
        figures |= {
            "files": float(len(landed)),
            "runs": float(count_runs(home) - runs),
            "rebalances, all": float(count_runs(home, "pipeline_name LIKE '%__rebalance'")),
            "failed runs, all": float(count_runs(home, "status = 'FAILURE'")),
            "runs an hour": (count_runs(home) - runs) / hours,
            "megabytes an hour": (count_bytes(home) - size) / hours / 1e6,
            "asset events": float(count_events(home) - events),
            "materializations": float(count_events(home, TOLD) - told),
            "busy cpu, % of a core": busy,
        }
        wait_for(lambda: len(list(find_seen(main, version))) >= len(landed), "the last files")
        fresh = sorted(at - landed[key] - SETTLE for key, at in find_seen(main, version))
        if len(fresh) != len(landed):
            raise SystemExit(f"{len(landed)} files landed, {len(fresh)} are in the table")
        return figures | {f"freshness p{q}, s": fresh[q * len(fresh) // 100] for q in (50, 95)}


def find_seen(main: Path, since: int) -> Iterator[tuple[tuple[str, int], float]]:
    """(partition, offset) of each file that a commit brought, and when."""
    for _, at, covered in read_commits(main, since):
        for partition, (start, end) in covered.items():
            yield from (((partition, offset), at) for offset in range(start, end))


def main() -> None:
    """The command."""
    words = argparse.ArgumentParser(description="Measures a trickle of small files.")
    words.add_argument("--minutes", type=float, default=10.0)
    words.add_argument("--idle", type=float, default=60.0, help="seconds for which the stack stands idle before")
    words.add_argument("--json", action="store_true")
    told = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-trickle-") as folder:
        figures = play(Path(folder), told.minutes, told.idle)
    if told.json:
        print(json.dumps(figures))  # noqa: T201
    else:
        print("\n".join(f"{name:<24} {value:10.2f}" for name, value in figures.items()))  # noqa: T201


if __name__ == "__main__":
    main()
