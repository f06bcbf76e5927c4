"""Files that trickle in, runs that a job without Spark does the work of, and what should be in the table."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from rota.dataplane.ports import ASSIGN, FailedPartition, Ports, WrittenFiles
from rota.ledger.values import Ranges
from rota.run.consume import CommittedBatch, IdlePartition, ParkedPartition, consume
from tests.chaos.plain_job import PlainJob, TopicJob
from tests.dataplane.conftest import log
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.topics import declare, number
from tests.dataplane.world import World

TEXT = 'pipeline = Pipeline(source=source(schema="n int", {more}), table=delta({table!r}))\n'


@dataclass(frozen=True)
class CheckedJob:
    """A plain job that fails what changed before it was read, as Spark's does."""

    job: PlainJob

    def run(self, jobs: Sequence[Ranges], **more: Any) -> Iterator[WrittenFiles | FailedPartition]:
        """See `Job.run`."""
        for ranges in jobs:
            broken = self.job.source.find_broken(ranges)
            yield from (FailedPartition(p, error) for p, error in broken.items())
            yield from self.job.run([{p: r for p, r in ranges.items() if p not in broken}], **more)


class Trickle:
    """Files of `a` and `b` that land one by one, and what of them should be in the table: (key, n)."""

    keys: Mapping[str, str] = {"a": "a", "b": "b"}  # -> the key of the partition
    offsets = 1  # of what lands at a time

    def __init__(self, folder: Path, more: str = "") -> None:
        """`more` are further arguments of the source."""
        folder.mkdir()
        self.world, self.numbers, self.names = World(folder, text=TEXT.replace("{more}", more)), count(), count()
        self.wanted: Counter[tuple[str, int]] = Counter()
        self.skipped: list[int] = []  # of `a`

    def land(self, key: str = "a", path: str = "") -> tuple[str, list[int]]:
        """A file of three rows; of `path` its new text."""
        numbers = [next(self.numbers) for _ in range(3)]
        name = path or f"{next(self.names):03}"
        self.world.land(key, name, (json.dumps({"n": n}) for n in numbers))
        self.wanted.update((key, n) for n in numbers)
        return name, numbers

    def park(self) -> tuple[str, ...]:
        """Park `a`, by a file that changes between its offset and its reading. Returns what a retry returns."""
        name, numbers = self.land()
        self.ports.source.observe((self.partition(),), ASSIGN)
        self.forget("a", numbers)
        self.land(path=name)
        self.consume()
        return (f"a/{name}.json",)

    def forget(self, key: str, numbers: list[int]) -> None:
        self.wanted.subtract((key, n) for n in numbers)

    @property
    def ports(self) -> Ports:
        return self.plain(self.world.ports)

    def plain(self, ports: Ports) -> Ports:
        job = PlainJob(ports.source, self.world.folder / "land", self.world.table / "main")
        return changed(ports, job=CheckedJob(job), reread=lambda ranges: self.plain(ports.reread(ranges)))

    def partition(self, key: str = "a") -> str:
        return self.world.pipeline.partition(self.keys[key])

    def give(self) -> None:
        self.world.give(*self.keys.values())

    def consume(self) -> None:
        """What comes, under the name and the worker of now."""
        world = self.world
        self.give()
        partitions = [self.partition(key) for key in "ab"]
        events = list(
            consume(world.tree, world.pipeline, world.incarnation, partitions, f"r{next(self.numbers)}", self.ports)
        )
        assert all(isinstance(e, CommittedBatch | IdlePartition | ParkedPartition) for e in events), events

    def damage(self) -> tuple[Counter[tuple[str, int]], Counter[tuple[str, int]]]:
        """What is lost and what is doubled."""
        rows = log(self.world.table / "main").rows()
        names = {name: key for key, name in self.keys.items()}
        found = Counter((names[str(r["_partition"]).partition(":")[2]], int(str(r["n"]))) for r in rows)
        return self.wanted - found, found - +self.wanted


class TopicTrickle(Trickle):
    """Records of a topic in place of files."""

    keys: Mapping[str, str] = {"a": "0", "b": "1"}
    offsets = 3

    def __init__(self, folder: Path, broker: Broker) -> None:
        folder.mkdir()
        self.broker, self.topic, self.poisoned = broker, f"orders-{uuid4().hex[:8]}", set[str]()
        broker.make(self.topic, len(self.keys))
        self.world, self.numbers = World(folder, text=declare(broker, self.topic)), count()
        self.wanted, self.skipped = Counter[tuple[str, int]](), list[int]()

    def land(self, key: str = "a", path: str = "") -> tuple[str, list[int]]:
        """Three records."""
        numbers = [next(self.numbers) for _ in range(self.offsets)]
        self.broker.produce(self.topic, int(self.keys[key]), [one for n in numbers for one in number(1, n)])
        self.wanted.update((key, n) for n in numbers)
        return path, numbers

    def park(self) -> tuple[str, ...]:
        """Park `a`, by a transform that fails for a time."""
        self.land()
        self.poisoned.add(self.partition())
        self.consume()
        self.poisoned.clear()
        return ()

    def plain(self, ports: Ports) -> Ports:
        job = TopicJob(ports.source, "", self.world.table / "main", self.poisoned.__contains__)
        return changed(ports, job=CheckedJob(job), reread=lambda ranges: self.plain(ports.reread(ranges)))
