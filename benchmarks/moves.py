"""What a partition that moves waits: a worker joins a group that consumes, and is drained again.

    python -m benchmarks.moves --moves 20
    python -m benchmarks.moves --moves 20 --source kafka
    python -m benchmarks.moves --moves 0 --restarts 3

Two workers consume 16 folders, in which 20 small files land each second, or the 16 partitions of a topic, to which 20
records are written each second. Then a third worker joins, takes its share and is asked to leave, again and again. Printed:
the longest time from a file's rename, or from the call that sends a record, until its row is in a version of the table,
without `settle`, in which a file rests. For a move it counts the files in the partitions that moved which landed in the
`BEFORE` seconds before the new epoch or later, until the new owner of each had committed. Beside it: all files while
nothing moved. `--restarts` has four workers, and restarts one after the other, so many times: it counts all files that land
from the SIGTERM of a worker until it owns its share again.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import costs
from benchmarks.trickle import SETTLE, Trickle, wait_for
from rota.demo.faults import wait_for_join
from rota.demo.observer import GIVEN_UP, Observer
from rota.local.kafka_broker import KafkaBroker
from rota.local.storage import open_folder

FILES = 20  # a second
FOLDERS = 16
BEFORE = 3.0  # seconds
QUIET = 15.0  # seconds after each drain in which nothing moves
TOPIC = "moves"
PIPELINE = """
from rota import Pipeline, delta
from rota.kafka import kafka
pipeline = Pipeline(source=kafka({servers!r}, {topic!r}, schema="n long"), table=delta("${{ROTA_TABLES}}/trickle"))
"""
WORKERS = 4  # of a rolling restart
WANTED = {"median": 2.0, "worst": 3.5}  # seconds; of a rolling restart the worst is 4.0


@dataclass(slots=True)
class Move:
    """A join or a drain of the third worker from `begun` to `ended`: which partitions moved. Or a restart of a worker or a
    time without a move, with all partitions."""

    kind: str
    begun: float
    ended: float
    moved: frozenset[str]

    def find_longest(self, trickle: Trickle, seen: Mapping[tuple[str, int], float]) -> float:
        """Return the longest wait of a file that landed meanwhile, given when each file was in the table."""
        landed = (
            (one, at) for one, at in trickle.landed.items() if one[0] in self.moved and self.begun <= at <= self.ended
        )
        return max(seen[one] - at for one, at in landed) - (0.0 if trickle.send else SETTLE)


@dataclass(slots=True)
class Moves:
    """A stack in which files land while a worker comes and goes."""

    trickle: Trickle
    observer: Observer
    moves: list[Move] = field(default_factory=list)

    def follow(self, kind: str, change: Callable[[], object], done: Callable[[], bool]) -> None:
        """Make the change, and wait until it is done and each partition that moved has a commit of its new owner."""
        before, begun = self._find_workers(), time.time()
        change()
        self.observer.wait_until(done, GIVEN_UP, kind)
        self.observer.wait_until(
            lambda: self._list_moved(before) <= self._list_committed(begun), GIVEN_UP, f"{kind} to end"
        )
        epoch = max(self.observer.epochs.values())  # a join has an earlier one, which moves nothing
        self.moves.append(Move(kind, epoch - BEFORE, time.time(), frozenset(self._list_moved(before))))

    def restart(self, name: str) -> None:
        """Restart a worker, and wait until it owns its share again."""
        begun, stack, share = time.time(), self.trickle.stack, FOLDERS // WORKERS
        child = stack.children.pop(name)
        child.end(patience=60.0)
        stack.start_worker(name)
        wait_for_join(self.observer, name)
        self.observer.wait_until(lambda: self.observer.holdings()[name] == share, GIVEN_UP, f"{name} to own its share")
        self.moves.append(Move("restart", begun, time.time(), frozenset(self.observer.owners())))

    def rest(self) -> None:
        """Let time pass in which nothing moves."""
        begun = time.time()
        self.observer.wait_until(lambda: time.time() >= begun + QUIET, GIVEN_UP, "nothing")
        self.moves.append(Move("no move", begun, time.time(), frozenset(self.observer.owners())))

    def _find_workers(self) -> dict[str, str]:
        return {p: owner.partition("@")[0] if owner else "" for p, owner in self.observer.owners().items()}

    def _list_moved(self, before: Mapping[str, str]) -> set[str]:
        return {p for p, worker in self._find_workers().items() if worker != before.get(p)}

    def _list_committed(self, since: float) -> set[str]:
        """The partitions that their present owner committed since then."""
        now, whose = self._find_workers(), self.observer.whose
        commits = (c for c in self.observer.commits if c.at > since and c.run_id in whose)
        return {p for c in commits for p in c.ranges if whose[c.run_id].worker == now.get(p)}


@contextmanager
def open_topic(folder: Path) -> Iterator[dict[str, Any]]:
    """Start a broker with a topic, and yield the arguments of `Trickle.start` for it."""
    from confluent_kafka import Producer

    broker = KafkaBroker(folder / "broker")
    try:
        broker.make(TOPIC, FOLDERS)
        producer = Producer({"bootstrap.servers": broker.servers, "linger.ms": 0})

        def send(number: int) -> str:
            producer.produce(TOPIC, b'{"n": %d}' % number, partition=number % FOLDERS)
            producer.poll(0)
            return str(number % FOLDERS)

        yield {"send": send, "pipeline": PIPELINE.format(servers=broker.servers, topic=TOPIC)}
    finally:
        broker.stop()


def play(folder: Path, moves: int, restarts: int, **source: Any) -> list[tuple[Move, float]]:
    """Run the stack, its records and all events, and return each event with its longest wait. `source`: see
    `Trickle.start`."""
    over = threading.Event()
    with Trickle.start(folder, folders=FOLDERS, **source) as files:
        feeding = threading.Thread(target=files.feed, args=(over.is_set, 1 / FILES), daemon=True)
        feeding.start()
        try:
            with Observer.connect_to(
                files.stack.env["ROTA_ZOOKEEPER"], open_folder(files.main), files.stack.check
            ) as observer:
                run = Moves(files, observer)
                _wait_for_share(observer, "w1", "w2")
                move(run, moves // 2)
                if restarts:
                    restart_all(run, restarts)
        finally:
            over.set()
            feeding.join()
        files.wait_consumed()
        seen = files.find_seen()
        return [(move, move.find_longest(files, seen)) for move in run.moves]


def move(run: Moves, times: int) -> None:
    """A worker joins and leaves so many times."""
    observer, stack = run.observer, run.trickle.stack
    for number in range(times):
        name = f"j{number}"
        run.follow("join", lambda: stack.start_worker(name), lambda: observer.holdings()[name] > 0)  # noqa: B023
        child = stack.children.pop(name)
        run.follow("drain", child.ask_to_end, lambda: not observer.holdings()[name])  # noqa: B023
        child.end(patience=60.0)
        run.rest()
        sys.stderr.write(f"{name}: {[len(one.moved) for one in run.moves[-3:-1]]} partitions moved\n")


def restart_all(run: Moves, times: int) -> None:
    """Each of `WORKERS` workers is restarted so many times, one after the other."""
    names = [f"w{number}" for number in range(1, WORKERS + 1)]
    for name in names[2:]:
        run.trickle.stack.start_worker(name)
    _wait_for_share(run.observer, *names)
    for _ in range(times):
        for name in names:
            run.restart(name)
        run.rest()


def _wait_for_share(observer: Observer, *workers: str) -> None:
    for worker in workers:
        wait_for_join(observer, worker)
    share = FOLDERS // len(workers)
    wait_for(lambda: all(observer.holdings()[worker] == share for worker in workers), "an even share")


def main() -> None:
    """The command."""
    words = argparse.ArgumentParser(description="Measures what a partition that moves waits.")
    words.add_argument("--moves", type=int, default=20, help="joins and drains")
    words.add_argument("--restarts", type=int, default=0, help="rolling restarts of all workers")
    words.add_argument("--source", choices=("files", "kafka"), default="files")
    given = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-moves-") as name, ExitStack() as opened:
        source = opened.enter_context(open_topic(Path(name))) if given.source == "kafka" else {}
        found = play(Path(name), given.moves, given.restarts, **source)
    lines = []
    for kind in dict.fromkeys(move.kind for move, _ in found):
        waits = sorted(wait for move, wait in found if move.kind == kind)
        number = sum(len(move.moved) for move, _ in found if move.kind == kind)
        figures = statistics.median(waits), waits[-1]
        lines.append([kind, str(len(waits)), str(number), *(f"{one:.1f}" for one in figures)])
    titles = ["", "events", "partitions", *(f"{name}, s (wanted {most:g})" for name, most in WANTED.items())]
    print(costs.format_table(titles, lines))  # noqa: T201
    print(f"\nMeasured on {costs.describe_machine()}.")  # noqa: T201


if __name__ == "__main__":
    main()
