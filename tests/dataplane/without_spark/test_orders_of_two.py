"""A replay, a rename, a skip, a retry and an adoption, one after another in any order, while files trickle in.

Every row of every file is in the table once, but for what was skipped and not replayed since. A job without Spark does the
work; all else is what ships.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rota.adopt import adopt
from rota.consume import CommittedBatch, IdlePartition, ParkedPartition, consume
from rota.dataplane.ports import FailedPartition, Ports, WrittenFiles
from rota.ledger.values import Ranges
from rota.rename import rename
from rota.replay import ReplayedRange, replay
from rota.retry import retry
from rota.skip import skip
from tests.chaos.plain_job import PlainJob
from tests.dataplane.conftest import log
from tests.dataplane.world import World

TEXT = 'pipeline = Pipeline(source=source(schema="n int"), table=delta({table!r}))\n'


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

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.world, self.numbers, self.names = World(folder, text=TEXT), count(), count()
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


def do_replay(one: Trickle) -> None:
    stands = one.ports.main.read_positions((one.partition(),))[one.partition()].offset
    (event,) = replay(one.world.tree, one.ports, {one.partition(): (0, stands or 1)}, "again")
    assert isinstance(event, ReplayedRange), event
    one.wanted.update(("a", n) for n in one.skipped)  # a replay of a range takes what was skipped in it
    one.skipped.clear()


def do_rename(one: Trickle) -> None:
    old = one.world.pipeline.name
    one.world.call(f"{old}q")
    one.world.give("a", "b")
    assert rename(one.world.tree, old, one.world.pipeline)


def do_skip(one: Trickle) -> None:
    one.consume()  # what waits, such as after a retry
    _, numbers = one.land()
    stands = one.ports.main.read_positions((one.partition(),))[one.partition()].offset
    end = one.ports.source.assign_offsets((one.partition(),))[one.partition()]
    assert end == (stands or 0) + 1
    assert skip(one.world.tree, one.ports, one.partition(), end) == (stands, end)
    one.forget("a", numbers)
    one.skipped += numbers


def do_retry(one: Trickle) -> None:
    """A file that changed between its offset and its reading."""
    name, numbers = one.land()
    one.ports.source.assign_offsets((one.partition(),))
    one.forget("a", numbers)
    one.land(path=name)
    one.consume()
    assert one.partition() in one.world.tree.parked()
    assert retry(one.world.tree, one.partition(), one.ports) == (f"a/{name}.json",)


def do_adopt(one: Trickle) -> None:
    adopt(one.world.tree, [one.world.pipeline])


VERBS: dict[str, Callable[[Trickle], None]] = {
    "replay": do_replay, "rename": do_rename, "skip": do_skip, "retry": do_retry, "adopt": do_adopt,
}  # fmt: skip


@pytest.mark.parametrize("first", VERBS)
def test_any_two_lose_and_double_nothing(first: str, tmp_path: Path) -> None:
    for number, second in enumerate(VERBS):
        between = (number + len(first)) % 2 == 0
        one = Trickle(tmp_path / str(number))
        for key in "aab":
            one.land(key)
        one.consume()
        VERBS[first](one)
        if between:
            one.land("a")
            one.land("b")
            one.consume()
        VERBS[second](one)
        one.land("b")
        one.consume()
        one.consume()
        assert one.damage() == (Counter(), Counter()), (first, second, between)
        assert not one.world.tree.parked(), (first, second, between)
