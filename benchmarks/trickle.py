"""Measures frequent small files: one every 3 s over 8 partitions, two workers, on a stack of `rota up` in a new folder. A
file lands up to a second late, at all phases of a poll.

    python -m benchmarks.trickle                          10 minutes with files, after a minute without
    python -m benchmarks.trickle --before 5 --kills 10    also with a run for each batch, and with killed workers

First the stack is idle: the CPU time of all its processes (ZooKeeper, daemon, page, code servers, two workers with Spark)
is counted. Then files land. Printed beside the wanted values: runs and megabytes of Dagster's storage an hour, and
freshness: the time from a file's rename into the landing folder until its rows are in a version of the table, minus
`settle` (2 s). Storage is counted once the last run has ended. Files that are not in the table at the end are an error. How
often the page shows a check as "Not Evaluated" is sampled four times a second, which costs CPU. `--before` runs for these
minutes on another stack with ROTA_LINGER=0: a run is one batch. `--kills` kills these workers on a third stack, each in the
middle of a batch: the seconds until another one committed for it, and their parts. `--protocol` and `--session` apply to
that stack; the session timeout is rota's default. Parts under `assigned`: the end of the session, the sensor's tick, the
controller's epoch, the second sensor's tick, the launch of a run, its query with claim and commit. A part of 0.0 s ended
before the part before it.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import costs
from benchmarks.checks_seen import sample_checks
from rota.demo import deltalog
from rota.demo.faults import KilledTooLate, KillFigures, kill_worker, wait_for_join
from rota.demo.observer import Observer
from rota.demo.verify import ranges
from rota.local.folder import StateFolder
from rota.local.page import DagsterPage
from rota.local.stack import Stack
from rota.local.storage import open_folder

SETTLE, PAUSE, PARTITIONS = 2.0, 3.0, 8
GOLDEN = 0.618  # by multiples of it the moments of a second are met evenly
REST = 30.0  # seconds after the last run in which the processes end what they had to do
SESSION = "10"  # seconds of a session, where workers are killed: the default of rota
WANTED = {  # figure -> the most that is wanted of it
    "runs an hour": 30.0,
    "storage, MB an hour": 20.0,
    "freshness p50, s": 3.0,
    "freshness p95, s": 8.0,
    "idle: runs": 0.0,
    "idle: CPU, % of a core": 10.0,
    "not evaluated: checks of records, % of samples": 2.0,
    "not evaluated: checks of checkpoints, % of samples": 2.0,
    "kill to commit, median s": 2.0,
    "kill to commit, worst s": 3.0,
}
PIPELINE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files("${ROTA_LANDING}/trickle", format="json", schema="n long", settle=SETTLE),
    table=delta("${ROTA_TABLES}/trickle"),
)
"""
GROUP = """
from rota import Group
group = Group("default", protocol="{protocol}")
"""


@dataclass(slots=True)
class Trickle:
    """A stack with pipeline `trickle`, whose two workers have consumed the first files."""

    stack: Stack
    page: DagsterPage
    numbers: Iterator[int] = field(default_factory=itertools.count)
    folders: int = PARTITIONS
    landed: dict[tuple[str, int], float] = field(default_factory=dict)  # (partition, offset) -> when it was there
    send: Callable[[int], str] | None = (
        None  # gives the record of a number to another source; returns its partition's key
    )

    @classmethod
    @contextmanager
    def start(
        cls,
        folder: Path,
        settle: float = SETTLE,
        *,
        folders: int = PARTITIONS,
        pipeline: str = PIPELINE,
        send: Callable[[int], str] | None = None,
        **settings: str,
    ) -> "Iterator[Trickle]":
        """Starts everything in the folder under these settings (`ROTA_...`), and ends it."""
        pipelines = folder / "pipelines"
        pipelines.mkdir(parents=True, exist_ok=True)
        (pipelines / "trickle.py").write_text(pipeline.replace("SETTLE", f"{settle:g}"))
        with Stack(
            StateFolder(folder / "state"), {**os.environ, **settings, "ROTA_PIPELINES": str(pipelines)}
        ) as stack:
            stack.start_zookeeper()
            for worker in ("w1", "w2"):
                stack.start_worker(worker)
            trickle = cls(stack, stack.start_dagster(3000), folders=folders, send=send)
            wait_for(trickle.page.answers, "Dagster's page")
            for _ in range(folders):
                trickle.land()
            trickle.wait_consumed()
            yield trickle

    @property
    def home(self) -> Path:
        """Where Dagster keeps what it stores."""
        return self.stack.state.dagster

    @property
    def main(self) -> Path:
        """The table."""
        return self.stack.state.tables / "trickle" / "main"

    def land(self) -> None:
        """One file of ten records in the next partition, or one record of another source."""
        number = next(self.numbers)
        key = (self.send or self._write)(number)
        self.landed[f"trickle:{key}", number // self.folders] = time.time()

    def _write(self, number: int) -> str:
        """Write a file aside and rename it. Return the key of its partition."""
        key = f"k{number % self.folders:02d}"
        path = self.stack.state.landing / "trickle" / key / f"{number:06d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}")
        aside.write_text("".join(json.dumps({"n": 10 * number + i}) + "\n" for i in range(10)))
        aside.rename(path)
        return key

    def feed(self, until: Callable[[], bool], pause: float = PAUSE) -> None:
        """Lands a file in `pause` s."""
        began = time.monotonic()
        for number in itertools.count(1):
            if until():
                return
            self.land()
            time.sleep(max(0.0, began + find_moment(number, pause) - time.monotonic()))

    def find_seen(self) -> dict[tuple[str, int], float]:
        """(partition, offset) of each file that is in the table, and when that was so. Raises SystemExit where one is in it
        twice."""
        seen: dict[tuple[str, int], float] = {}
        for commit in deltalog.commits(open_folder(self.main)):
            for partition, (start, end) in ranges(commit).items():
                for offset in range(start, end):
                    if seen.setdefault((partition, offset), commit.at) != commit.at:
                        raise SystemExit(f"{partition} [{offset}] is in the table twice")
        return seen

    def wait_consumed(self) -> None:
        """Returns once all that landed is in the table, and no run is left."""
        wait_for(lambda: len(self.find_seen()) >= len(self.landed), "the last files")
        wait_for(lambda: not self.count_runs("status IN ('QUEUED', 'STARTING', 'STARTED')"), "the last runs to end")

    def count_runs(self, where: str = "1") -> int:
        """Dagster's runs."""
        return costs.count_rows(self.home / "history" / "runs.db", "runs", where)


@dataclass(slots=True)
class Measured:
    """What was measured: figures by name, and processor seconds, bytes and events by what they are for."""

    figures: dict[str, float] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)  # % of a core
    busy: dict[str, float] = field(default_factory=dict)
    storage: dict[str, float] = field(default_factory=dict)  # MB an hour
    events: dict[str, tuple[int, float]] = field(default_factory=dict)  # number, and MB an hour


def find_moment(number: int, pause: float) -> float:
    """When a file lands, in seconds."""
    return pause * number + number * GOLDEN % 1


def wait_for(true: Callable[[], object], what: str, timeout: float = 180.0) -> None:
    """Returns once `true()` is."""
    deadline = time.monotonic() + timeout
    while not true():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {timeout:g} s for {what}")
        time.sleep(0.3)


def measure_idle(trickle: Trickle, seconds: float, into: Measured) -> None:
    """Nothing lands for so many seconds, after `REST` others."""
    time.sleep(REST)
    runs, size = trickle.count_runs(), read_size(trickle)
    into.idle = measure_cpu(lambda: time.sleep(seconds))
    grown = read_size(trickle) - size
    into.figures["idle: runs"] = trickle.count_runs() - runs
    into.figures["idle: CPU, % of a core"] = sum(into.idle.values())
    into.figures["idle: storage, MB an hour"] = grown / 1e6 / seconds * 3600


def read_size(trickle: Trickle) -> int:
    """Bytes of Dagster's storage that stay."""
    parts = costs.read_storage(trickle.home)
    return parts.total() - parts[costs.BESIDE]


def measure_cpu(do: Callable[[], object]) -> dict[str, float]:
    """Percent of a core by process while something is done."""
    before, began = costs.read_cpu(), time.monotonic()
    do()
    spent = costs.sum_up_cpu(before, costs.read_cpu())
    return {what: 100 * seconds / (time.monotonic() - began) for what, seconds in spent.most_common()}


def measure_trickle(trickle: Trickle, minutes: float, into: Measured, settle: float = SETTLE) -> None:
    """Files land for so many minutes. Freshness is reported without `settle`."""
    runs, size, known = trickle.count_runs(), costs.read_storage(trickle.home), set(trickle.landed)
    events, end = costs.read_events(trickle.home), time.monotonic() + 60 * minutes
    with sample_checks(trickle.page, "trickle") as grey:
        into.busy = measure_cpu(lambda: trickle.feed(lambda: time.monotonic() >= end))
    made, hours = trickle.count_runs() - runs, minutes / 60
    trickle.wait_consumed()
    seen = trickle.find_seen()
    fresh = sorted(seen[one] - at - settle for one, at in trickle.landed.items() if one not in known)
    grown = costs.read_storage(trickle.home)
    beside = grown.pop(costs.BESIDE, 0)
    grown.subtract({what: bytes_ for what, bytes_ in size.items() if what != costs.BESIDE})
    count, length = costs.read_events(trickle.home)
    count.subtract(events[0])
    into.storage = {what: bytes_ / 1e6 / hours for what, bytes_ in grown.most_common() if bytes_}
    into.events = {k: (n, (length[k] - events[1][k]) / 1e6 / hours) for k, n in count.most_common() if n}
    into.figures |= {
        "files": len(fresh),
        "runs": made,
        "runs an hour": made / hours,
        "storage, MB an hour": grown.total() / 1e6 / hours,
        "beside the databases, MB": beside / 1e6,
        "busy: CPU, % of a core": sum(into.busy.values()),
        **{f"freshness p{q}, s": fresh[q * len(fresh) // 100] for q in (50, 90, 95)},
        "freshness, worst, s": fresh[-1],
        "failed runs, all": trickle.count_runs("status = 'FAILURE'"),
        **{f"not evaluated: checks of {asset}, % of samples": percent for asset, percent in grey.items()},
        "rebalances, all": trickle.count_runs("pipeline_name LIKE '%__rebalance'"),
    }


def play(folder: Path, minutes: float, idle: float = 0.0, settle: float = SETTLE, **settings: str) -> Measured:
    """Starts everything, measures it idle and trickling, ends it."""
    measured = Measured()
    with Trickle.start(folder, settle, **settings) as trickle:
        if idle:
            measure_idle(trickle, idle, measured)
        measure_trickle(trickle, minutes, measured, settle)
    return measured


def play_kills(folder: Path, kills: int, protocol: str = "assigned", session: str = SESSION) -> list[KillFigures]:
    """Kill a worker in the middle of a batch, repeatedly, while files land; each time another joins. A kill that comes too
    late for its batch does not count."""
    done, over = list[KillFigures](), threading.Event()
    (folder / "pipelines").mkdir(parents=True)
    (folder / "pipelines" / "group.py").write_text(GROUP.format(protocol=protocol))
    with Trickle.start(folder, ROTA_SESSION_TIMEOUT=session) as trickle:
        stack = trickle.stack
        feeding = threading.Thread(target=trickle.feed, args=(over.is_set,), daemon=True)
        feeding.start()
        try:
            with Observer.connect_to(stack.env["ROTA_ZOOKEEPER"], open_folder(trickle.main), stack.check) as observer:
                for worker in ("w1", "w2"):
                    wait_for_join(observer, worker)
                for number in itertools.count():
                    with suppress(KilledTooLate):
                        done.append(kill_worker(stack, observer, trickle.page))
                        sys.stderr.write(f"{done[-1].seconds:.1f} s: {format_legs(done[-1])}\n")
                    if len(done) == kills:
                        break
                    stack.start_worker(f"w{number + 3}")
                    wait_for_join(observer, f"w{number + 3}")
        finally:
            over.set()
            feeding.join()
        trickle.wait_consumed()
    return done


def format_legs(kill: KillFigures) -> str:
    """The seconds of each part of the way to the next commit."""
    return ", ".join(f"{leg} {seconds:.2f}" for leg, seconds in kill.legs.items())


def add_kills(measured: Measured, kills: list[KillFigures]) -> None:
    """The medians of the seconds, and of each leg of the way."""
    took = sorted(one.seconds for one in kills)
    measured.figures |= {"kill to commit, median s": statistics.median(took), "kill to commit, worst s": took[-1]}
    for leg in kills[0].legs:
        measured.figures[f"kill to commit, of it {leg}"] = statistics.median(one.legs[leg] for one in kills)


def format_measured(measured: Measured, before: Measured | None) -> str:
    """The tables, in Markdown."""
    head = ["", "wanted at most", *(["a run for each batch"] if before else []), "measured"]
    rows = []
    for name, value in measured.figures.items():
        was = [f"{before.figures[name]:.1f}" if name in before.figures else ""] if before else []
        rows.append([name, f"{WANTED[name]:g}" if name in WANTED else "", *was, f"{value:.1f}"])
    parts: Mapping[str, Mapping[str, float]] = {"idle": measured.idle, "busy": measured.busy}
    names = Counter(measured.idle) | Counter(measured.busy)
    cpu = [[what, *(f"{of.get(what, 0.0):.1f}" for of in parts.values())] for what, _ in names.most_common()]
    stored = [[what, f"{size:.2f}"] for what, size in measured.storage.items()]
    events = [[kind, str(number), f"{size:.2f}"] for kind, (number, size) in measured.events.items()]
    tables = [
        (head, rows),
        (["CPU, % of a core", *parts], cpu),
        (["storage", "MB an hour"], stored),
        (["events, in two places each", "number", "MB an hour"], events),
    ]
    shown = [costs.format_table(titles, lines) for titles, lines in tables if lines]
    return "\n\n".join([*shown, f"Measured on {costs.describe_machine()}."])


def main() -> None:
    """The command."""
    words = argparse.ArgumentParser(description="Measures a trickle of small files.")
    words.add_argument("--minutes", type=float, default=10.0)
    words.add_argument("--idle", type=float, default=60.0, help="seconds for which the stack is idle before")
    words.add_argument("--before", type=float, default=0.0, help="minutes with a run for each batch")
    words.add_argument("--kills", type=int, default=0, help="workers to kill")
    words.add_argument("--protocol", default="assigned", help="of the group whose workers are killed")
    words.add_argument("--session", default=SESSION, help="seconds of its sessions")
    words.add_argument("--json", action="store_true")
    given = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-trickle-") as place:
        folder = Path(place)
        before = play(folder / "before", given.before, ROTA_LINGER="0") if given.before else None
        measured = play(folder / "now", given.minutes, given.idle) if given.minutes else Measured()
        if given.kills:
            add_kills(measured, play_kills(folder / "kills", given.kills, given.protocol, given.session))
    if given.json:
        print(json.dumps(measured.figures))  # noqa: T201
    else:
        print(format_measured(measured, before))  # noqa: T201


if __name__ == "__main__":
    main()
