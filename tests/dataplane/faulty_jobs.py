"""Runs without Spark, whose jobs fail as a test declares."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from rota.dataplane.ports import WrittenFiles
from rota.dataplane.spark.bisection import Bisection
from rota.run.consume import Event
from tests.dataplane.world import World

DISK = "java.io.IOException: No space left on device"


Range = tuple[int, int]


def spark(answers: bool = True) -> Any:
    def count() -> int:
        if not answers:
            raise ConnectionError
        return 1

    tags = {"addTag": lambda _: None, "removeTag": lambda _: None, "interruptTag": lambda _: None}
    conf = SimpleNamespace(set=lambda *_: None)
    return SimpleNamespace(conf=conf, range=lambda _: SimpleNamespace(count=count), **tags)


class Faults:
    """Replaces Spark's job. It fails with the first error that `fault(partition, range)` returns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fault: Callable[[str, Range], str | None]) -> None:
        self.jobs: list[Mapping[str, Range]] = []

        def written(job: Bisection, ranges: Mapping[str, Range], attempt: str) -> WrittenFiles:
            self.jobs.append(dict(ranges))
            for partition, one in ranges.items():
                if said := fault(partition, one):
                    raise RuntimeError(said)
            return WrittenFiles(attempt, ranges, (), 0.0)

        monkeypatch.setattr(Bisection, "write_together", written)


def land_files(world: World, keys: str, files: int = 1) -> None:
    for key in keys:
        for name in range(files):
            world.rows(key, f"{name:02}", 1)
    world.give(*keys)


def run(world: World, keys: str, answers: bool = True) -> dict[str, Event]:
    return {e.partition: e for e in world.run(*keys, connect=lambda _: spark(answers))}
