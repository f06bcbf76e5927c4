"""Files that trickle in, runs that a job without Spark does the work of, and what should be in the table."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from itertools import count
from pathlib import Path
from typing import Any

from rota.dataplane.ports import FailedPartition, Ports, WrittenFiles
from rota.ledger.values import Ranges
from rota.run.consume import CommittedBatch, IdlePartition, ParkedPartition, consume
from tests.chaos.plain_job import PlainJob
from tests.dataplane.conftest import log
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
    """Files of `a` and `b` that land one by one, and what of them should be in the table: (key, offset, n)."""

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

    def forget(self, key: str, numbers: list[int]) -> None:
        self.wanted.subtract((key, n) for n in numbers)

    @property
    def ports(self) -> Ports:
        return self.plain(self.world.ports)

    def plain(self, ports: Ports) -> Ports:
        job = PlainJob(ports.source, self.world.folder / "land", self.world.table / "main")
        return changed(ports, job=CheckedJob(job), reread=lambda ranges: self.plain(ports.reread(ranges)))

    def partition(self, key: str = "a") -> str:
        return self.world.pipeline.partition(key)

    def consume(self) -> None:
        """What comes, under the name and the worker of now."""
        world = self.world
        world.give("a", "b")
        partitions = [self.partition(key) for key in "ab"]
        events = list(
            consume(world.tree, world.pipeline, world.incarnation, partitions, f"r{next(self.numbers)}", self.ports)
        )
        assert all(isinstance(e, CommittedBatch | IdlePartition | ParkedPartition) for e in events), events

    def damage(self) -> tuple[Counter[tuple[str, int]], Counter[tuple[str, int]]]:
        """What is lost and what is doubled."""
        rows = log(self.world.table / "main").rows()
        found = Counter((str(r["_partition"]).partition(":")[2], int(str(r["n"]))) for r in rows)
        return self.wanted - found, found - +self.wanted
