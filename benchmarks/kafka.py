"""Compares three systems that write a topic of 16 partitions into a table: rota, Structured Streaming with Spark's
connector, and a consumer loop.

    python -m benchmarks.kafka --records 5000000

Each system runs as a user would deploy it, on one broker, one after the other. rota: the stack of `rota up` with two
workers, each with a Spark of two cores. Structured Streaming: one query in `local[2]`, into Parquet. The loop: two
processes of a consumer group, each of which writes Delta. See `kafka_peers`. Printed for each:

- records per second of a backlog of JSON values, from when the system is up until its last commit. rota is up at the first
  run's node, the others at the start of the query or the consumer: the starts of Dagster and Java do not count;
- freshness: from a record's timestamp to its commit, for 20 records per second during `--seconds`;
- the cost of a move: a third worker or member joins; the longest wait of a record of a moved partition;
- kill -9: the seconds until a live worker commits for the partitions of the dead one. A query is restarted at once;
- records that are missing in the table at the end, and duplicate rows, counted in its files.

With `--write` the table goes into the page of results. `--readers` measures only the reading: rota's reader and Spark's
connector in one session, to a sink that drops all records.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks import kafka_readers
from benchmarks.costs import describe_machine, format_table
from benchmarks.kafka_peers import make_table
from benchmarks.pages import write_section
from rota.coordination.client import connect
from rota.coordination.group_state import GroupState
from rota.demo import deltalog
from rota.local.folder import StateFolder
from rota.local.kafka_broker import KafkaBroker
from rota.local.stack import Stack
from rota.local.storage import open_below

PARTITIONS, TOPIC, RATE = 16, "flood", 20.0  # records a second of the trickle
SESSION = "4"  # seconds of a worker's session
LONG = 300.0  # seconds that anything may take
STREAMING = "Structured Streaming, Spark's connector"
PIPELINE = """
from rota import Pipeline, delta
from rota.kafka import kafka
pipeline = Pipeline(
    source=kafka({servers!r}, {topic!r}, schema="n long, pad string"), table=delta("${{ROTA_TABLES}}/flood"),
)
"""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: its worker, its time, and the next offset of each partition."""

    worker: str
    at: float
    ends: dict[int, int]


@dataclass(slots=True)
class Measured:
    """The commits of a system so far. `add` starts one more member, `kill` kills one; `list_files` lists its table's
    files."""

    add: Callable[[str], None]
    kill: Callable[[str], None]
    list_files: Callable[[], Iterable[str]]
    commits: list[Commit] = field(default_factory=list)
    up: float = 0.0

    def find_ends(self) -> dict[int, int]:
        """Return partition -> its next offset in the table."""
        ends: dict[int, int] = defaultdict(int)
        for one in list(self.commits):
            for n, end in one.ends.items():
                ends[n] = max(ends[n], end)
        return ends

    def find_holders(self, before: float) -> dict[int, str]:
        """The worker that committed each partition last."""
        return {n: one.worker for one in list(self.commits) if one.at <= before for n in one.ends}


@contextmanager
def run_peer(kind: str, broker: KafkaBroker, folder: Path, members: int) -> Iterator[Measured]:
    """Processes of `kafka_peers`."""
    processes: dict[str, subprocess.Popen[str]] = {}

    def listen(name: str, process: "subprocess.Popen[str]") -> None:
        for line in process.stdout or ():
            said = json.loads(line)
            if said["ends"]:
                measured.commits.append(Commit(name, said["at"], {int(n): end for n, end in said["ends"].items()}))
            else:
                measured.up = measured.up or said["at"]

    def add(name: str) -> None:
        command = [sys.executable, "-m", "benchmarks.kafka_peers", kind, broker.servers, TOPIC, str(folder)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )  # fmt: skip
        processes[name] = process
        threading.Thread(target=listen, args=(name, process), daemon=True).start()

    def kill(name: str) -> None:
        process = processes.pop(name)
        os.killpg(process.pid, 9)
        process.wait()
        if kind == "streaming":
            add(name)

    def list_files() -> Iterable[str]:
        if kind == "loop":
            return DeltaTable(str(folder / "loop")).file_uris()
        said = (folder / "stream/_spark_metadata").glob("[0-9]*")
        lines = (json.loads(line) for log in said for line in log.open() if line[0] == "{")
        return {one["path"].removeprefix("file://") for one in lines}

    measured = Measured(add, kill, list_files)
    if kind == "loop":
        make_table(str(folder / kind))
    try:
        for number in range(members):
            add(f"w{number + 1}")
        yield measured
    finally:
        for process in processes.values():
            os.killpg(process.pid, 9)
            process.wait()


@contextmanager
def run_rota(broker: KafkaBroker, folder: Path, members: int) -> Iterator[Measured]:
    """The stack of `rota up`."""
    pipelines = folder / "pipelines"
    pipelines.mkdir(parents=True)
    (pipelines / "flood.py").write_text(PIPELINE.format(servers=broker.servers, topic=TOPIC))
    over = threading.Event()
    with ExitStack() as opened:
        given = {**os.environ, "ROTA_PIPELINES": str(pipelines), "ROTA_SESSION_TIMEOUT": SESSION}
        stack = opened.enter_context(Stack(StateFolder(folder / "state"), given))
        hosts = stack.start_zookeeper()
        main = open_below(stack.open_tables("flood"), "main")

        table = folder / "state" / "tables" / "flood" / "main"
        measured = Measured(
            lambda name: stack.start_worker(name) and None,
            stack.kill,
            lambda: [str(table / name) for name in deltalog.read(main).files],
        )
        for number in range(members):
            measured.add(f"w{number + 1}")
        stack.start_dagster(3000)
        opened.callback(over.set)

        def listen() -> None:
            version = -1
            with connect(hosts, 10.0) as store:
                tree = GroupState(store, "default")
                while not over.wait(0.05):
                    if not measured.up and tree.exists() and tree.runs():
                        measured.up = time.time()
                    for one in deltalog.commits(main, version):
                        version = one.version
                        if one.info.get("rota.op") == "commit":
                            ranges = json.loads(one.info["rota.ranges"])
                            ends = {int(p.partition(":")[2]): end for p, (_, end) in ranges.items()}
                            worker = str(one.info["rota.incarnation"]).partition("@")[0]
                            measured.commits.append(Commit(worker, one.at, ends))

        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        opened.callback(listening.join)
        opened.callback(over.set)
        yield measured


def wait_for(true: Callable[[], object], what: str) -> None:
    """Prints `what`, and returns once `true()` is true. Raises SystemExit."""
    deadline = time.monotonic() + LONG
    say(f"waits for {what}")
    while not true():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {LONG:g} s for {what}")
        time.sleep(0.05)


class Feed:
    """Records that trickle in, and when each was produced."""

    def __init__(self, broker: KafkaBroker) -> None:
        from confluent_kafka import Producer

        self.producer = Producer({"bootstrap.servers": broker.servers, "linger.ms": 0})
        self.stamps: dict[tuple[int, int], float] = {}

    def give(self, seconds: float) -> float:
        """Produce records for these seconds, and return when that began."""
        began = time.time()
        for number in range(int(seconds * RATE)):
            time.sleep(max(0.0, began + number / RATE - time.time()))
            value, at = b'{"n": %d, "pad": "%070d"}' % (number, number), time.time()
            self.producer.produce(
                TOPIC,
                value,
                partition=number % PARTITIONS,
                on_delivery=lambda _, one, at=at: self.stamps.__setitem__((one.partition(), one.offset()), at),
            )
            self.producer.poll(0)
        self.producer.flush(LONG)
        return began

    def find_waits(self, commits: list[Commit], since: float) -> dict[tuple[int, int], float]:
        """Return the seconds from each record that was produced since then to its commit, if it is in the table."""
        waits = {}
        for (n, offset), at in self.stamps.items():
            if at >= since:
                found = min((one.at for one in commits if one.ends.get(n, 0) > offset), default=None)
                if found is not None:
                    waits[n, offset] = found - at
        return waits


def count_wrong(files: Iterable[str], given: int) -> tuple[int, int]:
    """Count the missing records of `given` ones, and the surplus rows, by partition and offset of each row."""
    rows = pa.concat_tables(pq.ParquetFile(file).read() for file in files)
    place = [name for name in rows.column_names if name.lstrip("_") in ("partition", "offset")]
    found = rows.select(place).group_by(place).aggregate([]).num_rows
    return given - found, rows.num_rows - found


def measure(measured: Measured, broker: KafkaBroker, records: int, seconds: float, alone: bool) -> list[str]:
    """Run all phases of one system, and return its row without its name."""
    total, feed = dict.fromkeys(range(PARTITIONS), records // PARTITIONS), Feed(broker)

    def caught_up() -> bool:
        ends = measured.find_ends()
        wanted = {**total, **{n: max(o for m, o in feed.stamps if m == n) + 1 for n, _ in feed.stamps}}
        return all(ends[n] >= end for n, end in wanted.items())

    wait_for(caught_up, "the backlog")
    rate = records / (max(one.at for one in measured.commits) - measured.up)
    began = feed.give(seconds)
    wait_for(caught_up, "the trickle")
    fresh = quantiles(feed.find_waits(measured.commits, began).values(), n=20)
    moved = "-"
    if not alone:
        before, joined = measured.find_holders(time.time()), time.time()
        measured.add("w3")
        feed.give(max(20.0, seconds))
        wait_for(caught_up, "what came while one joined")
        after = measured.find_holders(time.time())
        waits = feed.find_waits(measured.commits, joined)
        worst = max((w for (n, _), w in waits.items() if before.get(n) != after.get(n)), default=0.0)
        moved = f"{worst:.1f} s, {sum(before.get(n) != after.get(n) for n in total)} moved"
    feeding = threading.Thread(target=feed.give, args=(25.0,))
    feeding.start()
    time.sleep(5)
    had = {n for n, worker in measured.find_holders(time.time()).items() if worker == "w1"}
    at = time.time()
    measured.kill("w1")
    wait_for(
        lambda: any(one.at > at and had & one.ends.keys() for one in list(measured.commits)), "a commit after the kill"
    )
    killed = min(one.at for one in measured.commits if one.at > at and had & one.ends.keys()) - at
    feeding.join()
    wait_for(caught_up, "the last records")
    lost, twice = count_wrong(measured.list_files(), records + len(feed.stamps))
    freshness = f"{fresh[9]:.1f} / {fresh[18]:.1f} s"
    return [f"{rate:,.0f}", freshness, moved, f"{killed:.1f} s", f"{lost:,}", f"{twice:,}", f"{os.getloadavg()[0]:.1f}"]


HEAD = [
    "", "records/s", "freshness p50 / p95", "a partition that moved", "kill -9 to the next commit", "records lost",
    "rows twice", "load",
]  # fmt: skip


def main() -> None:
    """Prints a row for each system."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--records", type=int, default=5_000_000)
    words.add_argument("--seconds", type=float, default=30.0, help="of the trickle")
    words.add_argument("--readers", action="store_true", help="the readers alone")
    words.add_argument("--write", action="store_true")
    given = words.parse_args()
    records = given.records // PARTITIONS * PARTITIONS
    systems: dict[str, Callable[[KafkaBroker, Path], AbstractContextManager[Measured]]] = {
        "rota, 2 workers": lambda broker, folder: run_rota(broker, folder, 2),
        STREAMING: lambda broker, folder: run_peer("streaming", broker, folder, 1),
        "a loop of 2 processes": lambda broker, folder: run_peer("loop", broker, folder, 2),
    }
    rows = []
    with tempfile.TemporaryDirectory(prefix="rota-kafka-") as name:
        broker = KafkaBroker(Path(name, "broker"))
        try:
            if given.readers:
                kafka_readers.measure(Path(name), broker, records)
                return
            for number, (system, run) in enumerate(systems.items()):
                say(f"{system}: {records:,} records")
                kafka_readers.fill(broker, TOPIC, records)
                folder = Path(name, str(number))
                folder.mkdir()
                with run(broker, folder) as measured:
                    rows.append([system, *measure(measured, broker, records, given.seconds, system == STREAMING)])
                say(" | ".join(rows[-1]))
                broker.admin.delete_topics([TOPIC])[TOPIC].result(60)
                wait_for(lambda: TOPIC not in broker.admin.list_topics(timeout=5).topics, "the topic to go")
        finally:
            broker.stop()
    said = f"{format_table(HEAD, rows)}\n\n{records:,} records; {describe_machine()}."
    sys.stdout.write(f"{said}\n")
    if given.write:
        write_section(Path("docs/results.md"), "kafka", said)


def say(line: str) -> None:
    """Print the progress."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
