"""Two commands of one pipeline at once: the second begins and ends before one call of the first to a store.

`tests.chaos.two_at_once` plays all. A job without Spark does the work; ZooKeeper is in memory; all else is what ships. The
checker reads the JSON of the logs and Parquet alone. Laws:

1. A command ends well or raises one RotaError of one line. A killed one is typed again.
2. Afterwards an operator does what the parked partitions and the errors ask for, and runs consume. Then each offset has the
   rows of one file, of one of its contents, once; skipped offsets that no replay wrote since have none.
3. No offset is committed twice or left out. Checkpoints equal the table's offsets, and no partition is parked.
"""

import json
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rota.coordination.group_state import GroupState
from rota.dataplane.files.bucket import BucketLanding
from rota.dataplane.files.disk import DiskLanding
from rota.dataplane.ports import ASSIGN, FailedPartition, Ports, WrittenFiles
from rota.deltalog.delta_log import DeltaLog
from rota.errors import RotaError
from rota.ledger import merging
from rota.ledger.values import Ranges
from rota.people.adopt import adopt
from rota.people.rename import rename
from rota.people.retry import retry
from rota.people.skip import skip
from rota.registry import open_ports
from rota.run.consume import consume
from rota.run.maintain import maintain
from rota.run.replay import RefusedReplay, replay
from simulator.memory_store import MemoryStore
from tests.bucket import Place
from tests.chaos.plain_job import PlainJob
from tests.dataplane.conftest import Seen, log
from tests.dataplane.world import World

TEXT = 'pipeline = Pipeline(source=source(schema="n int", after={after!r}), table=delta({table!r}))\n'
# What a command calls: the second one acts before one of these calls.
CALLS: tuple[tuple[type, str], ...] = (
    (MemoryStore, "get_many"), (MemoryStore, "children"), (MemoryStore, "multi"), (DeltaLog, "open"),
    (DeltaLog, "put_commit"), (DiskLanding, "look"), (DiskLanding, "take"), (BucketLanding, "look"),
    (BucketLanding, "take"), (PlainJob, "run"),
)  # fmt: skip


class Killed(BaseException):
    """The process of the first command is gone."""


@dataclass(frozen=True)
class WatchfulJob:
    """A plain job that fails what changed before or while it was read, as Spark's does."""

    job: PlainJob

    def run(self, jobs: Sequence[Ranges], **more: Any) -> Iterator[WrittenFiles | FailedPartition]:
        """See `Job.run`."""
        source, recheck = self.job.source, more.pop("recheck", dict)
        for wanted in map(recheck, jobs):
            broken = source.find_broken(wanted)
            whole = {p: r for p, r in wanted.items() if p not in broken}
            pieces = list[WrittenFiles | FailedPartition]()
            with suppress(FileNotFoundError):  # the second look names what is gone
                pieces += self.job.run([whole], **more) if whole else []
            broken |= source.find_broken(whole)
            yield from (FailedPartition(p, error) for p, error in broken.items())
            for piece in pieces:
                assert isinstance(piece, WrittenFiles)
                ranges = {p: r for p, r in piece.ranges.items() if p not in broken}
                if ranges:
                    yield replace(piece, ranges=ranges, files=tuple(f for f in piece.files if f.partition in ranges))


@dataclass
class Stage:
    """Two partitions with rows in the table. `stuck`: a file of `a` changed after it got its offset, and `a` is parked."""

    folder: Path
    place: Place
    stuck: bool
    after: str = "keep"
    contents: dict[str, list[list[int]]] = field(default_factory=lambda: defaultdict(list))  # of each path
    said: list[str] = field(default_factory=list)
    skipped: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.numbers, self.names = count(), count()
        self.land_at, self.table = self.place / "land", self.place / "p"
        text = TEXT.replace("{after!r}", repr(self.after)).replace("{table!r}", repr(self.table.address))
        self.world = World(self.folder, text=text, landing=self.land_at.address)
        self.world.join("w1")
        for key in "aaabb":
            self.land(key)
        self.do("run")
        self.land("b")
        self.do("run")
        waiting = self.land("a")
        self.land("a")
        if self.stuck:
            self.open(self.world.pipeline).source.observe((self.partition("a"),), ASSIGN)
            self.land("a", waiting)
            self.do("run")
            assert self.world.tree.parked()
        self.land("b")
        assert not self.said, self.said

    def land(self, key: str, path: str = "") -> str:
        """Lands a file of three rows, or overwrites the one at `path`."""
        path = path or f"{key}/{next(self.names):03}.json"
        self.contents[path].append([next(self.numbers) for _ in range(3)])
        self.land_at.put(path, "".join(f'{{"n": {n}}}\n' for n in self.contents[path][-1]).encode())
        return path

    def partition(self, key: str) -> str:
        return self.world.pipeline.partition(key)

    def open(self, pipeline: Any, tree: GroupState | None = None) -> Ports:
        tree = tree or self.world.tree
        return self.plain(open_ports(pipeline, tree.group, tree.meta().id))

    def plain(self, ports: Ports) -> Ports:
        job = PlainJob(ports.source, self.land_at.address, f"{self.table.address}/main")
        return replace(ports, job=WatchfulJob(job), reread=lambda ranges: self.plain(ports.reread(ranges)))

    def do(self, name: str) -> None:
        """One command, over a session of its own that ends with it, as that of a process does."""
        tree = self.world.open()
        try:
            VERBS[name](self, tree)
        except RotaError as error:
            self.said.append(f"{name}: {type(error).__name__}: {error}")
        finally:
            self.world.server.expire(tree.store.session)  # type: ignore[attr-defined]

    def mend(self, again: Sequence[str]) -> None:
        """An operator types `again` what failed or died, and does what parked partitions ask for; then runs consume."""
        for name in again:
            self.do(name)
        for _ in range(4):
            now = self.world.server.clock() + 3700.0
            self.world.server.clock = lambda at=now: at
            for p, one in self.world.tree.parked().items():
                with suppress(RotaError):
                    if p.partition(":")[0] == self.world.pipeline.name:
                        retry(self.world.tree, p, self.open(self.world.pipeline))
                    else:
                        self.said.append(f"parked for good: {p}: {one.record}")
            self.do("run")

    # --- what there is then, by a reader of its own

    def judge(self, *, killed: bool) -> list[str]:
        """What is not as the laws say. A `killed` or failed command may have skipped."""
        name, main = self.world.pipeline.name, log(self.table.files / "main")
        wrong = [f"parked: {p}: {one}" for p, one in self.world.tree.parked().items()]
        wrong += [f"more than a line: {line}" for line in self.said if "\n" in line]
        ends, last = Counter[str](), dict[tuple[str, int], str]()
        for one in main.commits:
            op = str(one.get("rota.op"))
            ranges = json.loads(str(one.get("rota.ranges") or "{}"))
            for p, (start, end) in ranges.items():
                key = p.partition(":")[2]
                if op in ("commit", "skip"):
                    if start != ends[key]:
                        wrong.append(f"{op} of {p} from {start} to {end} behind {ends[key]}")
                    ends[key] = max(end, ends[key])
                if op in ("commit", "skip", "replay"):
                    last |= {(key, offset): op for offset in range(start, end)}
        paths = self.read_index()
        rows = defaultdict(list)
        for row in main.rows():
            pipeline, _, key = str(row["_partition"]).partition(":")
            rows[key, int(str(row["_offset"]))].append(int(str(row["n"])))
            if pipeline != name:
                wrong.append(f"a row of {pipeline}: {row}")
        for at, path in paths.items():
            found, kinds = sorted(rows.pop(at, [])), self.contents[path]
            if last.get(at) == "skip":
                wrong += [f"{at} is skipped and has {found}"] if found else []
            elif found not in kinds:
                wrong.append(f"{at} of {path} has {found}, not one of {kinds}: {last.get(at)}")
            elif found == kinds[0] and len(kinds) > 1:
                wrong.append(f"{at} of {path} has the rows of before: {found}")
        wrong += [f"rows of no file: {at}: {found}" for at, found in rows.items()]
        if sorted(paths.values()) != sorted(self.contents):
            wrong.append(f"files in the index {sorted(paths.values())}, landed {sorted(self.contents)}")
        if not 0 <= len(main.said("skip")) - self.skipped <= killed:
            wrong.append(f"{len(main.said('skip'))} skips in the log, and {self.skipped} commands that ended well")
        points = {p: c.record.offset for p, c in self.world.tree.checkpoints().items()}
        if points != (wanted := {self.partition(key): end for key, end in ends.items()}):
            wrong.append(f"checkpoints {points}, table {wanted}")
        return wrong

    def read_index(self) -> dict[tuple[str, int], str]:
        """(key, offset) -> path."""
        seen: Seen = log(self.table.files / "index")
        found: dict[tuple[str, int], str] = {}
        for row in seen.rows():
            pipeline, _, key = str(row["partition"]).partition(":")
            if pipeline == self.world.pipeline.name:
                at = (key, int(str(row["ordinal"])))
                assert at not in found, f"two files of {at}: {found[at]}, {row['path']}"
                found[at] = str(row["path"])
        return found


def do_run(one: Stage, tree: GroupState) -> None:
    pipeline, incarnation = one.world.pipeline, one.world.incarnation
    one.world.give("a", "b")
    partitions = [pipeline.partition(key) for key in "ab"]
    list(consume(tree, pipeline, incarnation, partitions, f"r{next(one.numbers)}", one.open(pipeline, tree)))


def do_take(one: Stage, tree: GroupState) -> None:
    """Another worker takes the partitions over, and consumes."""
    one.world.join(f"w{next(one.numbers)}")
    do_run(one, tree)


def do_replay(one: Stage, tree: GroupState) -> None:
    pipeline = one.world.pipeline
    for event in replay(tree, one.open(pipeline, tree), {pipeline.partition("a"): (0, 3)}, f"r{next(one.numbers)}"):
        if isinstance(event, RefusedReplay):
            one.said.append(f"replay: RefusedReplay: {event.reason}")


def do_rename(one: Stage, tree: GroupState) -> None:
    if one.world.pipeline.name == "p":
        one.world.call("q")
    rename(tree, "p", one.world.pipeline)


def do_skip(one: Stage, tree: GroupState) -> None:
    """Of what `a` is parked for; else of the offset at which `rota status` shows it."""
    pipeline = one.world.pipeline
    partition, ports = pipeline.partition("a"), one.open(pipeline, tree)
    to = None if one.stuck else (ports.main.read_positions((partition,))[partition].offset or 0) + 1
    start, end = skip(tree, ports, partition, to)
    assert end == start + 1
    one.skipped += 1


def do_retry(one: Stage, tree: GroupState) -> None:
    pipeline = one.world.pipeline
    if (partition := pipeline.partition("a")) in tree.parked():
        retry(tree, partition, one.open(pipeline, tree))


def do_adopt(one: Stage, tree: GroupState) -> None:
    adopt(tree, [one.world.pipeline])


def do_maintain(one: Stage, _: GroupState) -> None:
    for line in maintain(one.world.pipeline).failed:
        one.said.append(f"maintain: {line}")


VERBS: dict[str, Callable[[Stage, GroupState], None]] = {
    "run": do_run, "take": do_take, "replay": do_replay, "rename": do_rename, "skip": do_skip, "retry": do_retry,
    "adopt": do_adopt, "maintain": do_maintain,
}  # fmt: skip


@contextmanager
def before_call(at: int, act: Callable[[], None]) -> Iterator[Counter[str]]:
    """`act` is called once, before call number `at` of those in CALLS; what was called, by name."""
    seen, within = Counter[str](), [False]

    def wrap(kind: type, name: str) -> Any:
        real = getattr(kind, name)

        def call(*args: Any, **more: Any) -> Any:
            if not within[0]:
                seen[f"{kind.__name__}.{name}"] += 1
                if seen.total() == at:
                    within[0] = True
                    act()
                    within[0] = False
            return real(*args, **more)

        return patch.object(kind, name, call)

    with ExitStack() as stack:
        for kind, name in CALLS:
            stack.enter_context(wrap(kind, name))
        yield seen


@dataclass(frozen=True)
class Play:
    """What became of two commands, of which the second came before call `at` of the first."""

    at: int
    struck: bool
    wrong: tuple[str, ...]
    said: tuple[str, ...]


def play(
    stage: Stage, first: str, second: str, at: int, *, killed: bool = False, rest: Callable[[], None] = lambda: None
) -> Play:
    """`killed`: the first command dies where the second ended. `rest` is called before an operator repairs it."""
    done: list[bool] = []

    def act() -> None:
        done.append(True)
        stage.do(second)
        if killed:
            raise Killed

    wrong: list[str] = []
    again = []
    try:
        with before_call(at, act), suppress(Killed), patch.object(merging, "FEW", 2):
            stage.do(first)
        rest()
        if killed or stage.said:
            again = [name for name in (first, second) if name in ("rename", "adopt")]
        if done:
            stage.mend(again)
            wrong = stage.judge(killed=killed or bool(stage.said))
    except Exception:
        wrong = [traceback.format_exc()]
    return Play(at, bool(done), tuple(wrong), tuple(stage.said))
