"""Whom a failed job parks, without Spark: a job is what `faults` says of the partitions that it holds."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rota.consume import Committed, Event, Parked
from rota.dataplane import failures
from rota.dataplane.failures import judged
from rota.dataplane.job import ALONE, Job, Written
from rota.errors import BadTransform, EnvironmentFailed
from tests.dataplane.world import World

DISK = "java.io.IOException: No space left on device"
CAST = '[CAST_INVALID_INPUT] The value \'{}\' of the type "STRING" cannot be cast to "BIGINT". SQLSTATE: 22018'
Range = tuple[int, int]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def spark(answers: bool = True) -> Any:
    def count() -> int:
        if not answers:
            raise ConnectionError
        return 1

    return SimpleNamespace(conf=SimpleNamespace(set=lambda *_: None), range=lambda _: SimpleNamespace(count=count))


class Faults:
    """Stands in for Spark's work: the job fails with `fault(partition, range)` of the first that has one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fault: Callable[[str, Range], str | None]) -> None:
        self.jobs: list[Mapping[str, Range]] = []

        def written(job: Job, ranges: Mapping[str, Range], attempt: str) -> Written:
            self.jobs.append(dict(ranges))
            for partition, one in ranges.items():
                if said := fault(partition, one):
                    raise RuntimeError(said)
            return Written(attempt, ranges, (), 0.0)

        monkeypatch.setattr(Job, "_written", written)


def landed(world: World, keys: str, files: int = 1) -> None:
    for key in keys:
        for name in range(files):
            world.rows(key, str(name), 1)
    world.give(*keys)


def run(world: World, keys: str, answers: bool = True) -> dict[str, Event]:
    return {e.partition: e for e in world.run(*keys, connect=lambda _: spark(answers))}


# --- the environment, or what a message quotes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        CAST.format("Connection refused"),
        CAST.format("it's a Connection refused"),
        "ValueError: no level in line 'sshd: Permission denied for root'",
        'ValueError: no level in line "can\'t: Too many open files"',
    ],
)
def test_what_a_message_quotes_is_data(text: str) -> None:
    assert isinstance(judged(RuntimeError(text), spark(), "p-a"), BadTransform)


@pytest.mark.parametrize(
    "text",
    [
        "can't write, don't know why: No space left on device",
        "OSError: [Errno 13] Permission denied: '/data/x'",
        'Cannot run program "python3": error=2',
    ],
)
def test_what_stands_beside_a_quotation_is_the_environments(text: str) -> None:
    assert isinstance(judged(RuntimeError(text), spark(), "p-a"), EnvironmentFailed)


def test_a_word_in_the_data_parks_its_own_partition_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unquoted: nobody can tell it from the environment, but the others go through, and one alone is tried again."""
    landed(world, "abcd")
    Faults(monkeypatch, lambda p, _: "ValueError: sshd: Connection refused" if p == "p-c" else None)
    events = run(world, "abcd")
    assert {p: type(e) for p, e in events.items()} == {
        "p-a": Committed, "p-b": Committed, "p-c": Parked, "p-d": Committed,
    }  # fmt: skip
    parked = events["p-c"]
    assert isinstance(parked, Parked)
    assert parked.retry_at is not None
    assert "p-c alone (ValueError: sshd: Connection refused)" in parked.reason
    assert parked.reason.endswith("rota retry p-c")


@pytest.mark.parametrize("alone", [[], ["p-a"]], ids=["everybody's", "and one that fails on its data"])
def test_what_nobody_gets_through_parks_nobody_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch, alone: list[str]
) -> None:
    landed(world, "abc")
    Faults(monkeypatch, lambda p, _: "ValueError: poison" if p in alone else DISK)
    with pytest.raises(EnvironmentFailed, match="No space left"):
        run(world, "abc")
    assert list(world.tree.parked()) == alone


def test_a_spark_that_is_gone_is_not_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not where one went through before: what died under the others is not theirs."""
    landed(world, "abcd")
    lives = [True, False]
    monkeypatch.setattr(failures, "alive", lambda _: lives.pop(0))
    faults = Faults(monkeypatch, lambda p, _: DISK if p > "p-b" else None)
    with pytest.raises(EnvironmentFailed):
        run(world, "abcd")
    assert [len(one) for one in faults.jobs] == [4, 2, 2]
    assert not world.tree.parked()
    assert {p: c.record.offset for p, c in world.tree.checkpoints().items()} == {
        f"p-{k}": int(k in "ab") for k in "abcd"
    }


def test_a_full_disk_is_not_tried_by_every_partition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = "abcdefghijklmnopqrstuvwxyz"
    landed(world, keys)
    faults = Faults(monkeypatch, lambda *_: DISK)
    with pytest.raises(EnvironmentFailed):
        run(world, keys)
    assert sum(len(one) == 1 for one in faults.jobs) == ALONE
    assert len(faults.jobs) < 2 * ALONE + 4
