"""A replay, a rename, a skip, a retry and an adoption, one after another in any order, while files or records trickle in.

Every row is in the table once, but for what was skipped and not replayed since. A job without Spark does the
work; all else is what ships.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.dataplane.ports import ASSIGN
from rota.people.adopt import adopt
from rota.people.rename import rename
from rota.people.retry import retry
from rota.people.skip import skip
from rota.run.replay import ReplayedRange, replay
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.without_spark.trickle import TopicTrickle, Trickle


def do_replay(one: Trickle) -> None:
    offset = one.ports.main.read_positions((one.partition(),))[one.partition()].offset
    (event,) = replay(one.world.tree, one.ports, {one.partition(): (0, offset or 1)}, "again")
    assert isinstance(event, ReplayedRange), event
    one.wanted.update(("a", n) for n in one.skipped)  # a replay of a range also reads its skipped offsets
    one.skipped.clear()


def do_rename(one: Trickle) -> None:
    old = one.world.pipeline.name
    one.world.call(f"{old}q")
    one.give()
    assert rename(one.world.tree, old, one.world.pipeline)


def do_skip(one: Trickle) -> None:
    one.consume()  # consumes offsets that wait, such as after a retry
    _, numbers = one.land()
    offset = one.ports.main.read_positions((one.partition(),))[one.partition()].offset
    end = one.ports.source.observe((one.partition(),), ASSIGN).ends[one.partition()]
    assert end == (offset or 0) + one.offsets
    assert skip(one.world.tree, one.ports, one.partition(), end) == (offset, end)
    one.forget("a", numbers)
    one.skipped += numbers


def do_retry(one: Trickle) -> None:
    changed = one.park()
    assert one.partition() in one.world.tree.parked()
    assert retry(one.world.tree, one.partition(), one.ports) == changed


def do_adopt(one: Trickle) -> None:
    adopt(one.world.tree, [one.world.pipeline])


VERBS: dict[str, Callable[[Trickle], None]] = {
    "replay": do_replay, "rename": do_rename, "skip": do_skip, "retry": do_retry, "adopt": do_adopt,
}  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("kafka"))
    yield running
    running.stop()


@pytest.mark.parametrize("first", VERBS)
@pytest.mark.parametrize("source", ["folder", "topic"])
def test_any_two_lose_and_double_nothing(source: str, first: str, tmp_path: Path, broker: Broker) -> None:
    for number, second in enumerate(VERBS):
        between = (number + len(first)) % 2 == 0
        folder = tmp_path / str(number)
        one = Trickle(folder) if source == "folder" else TopicTrickle(folder, broker)
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
