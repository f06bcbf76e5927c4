"""A replay, a rename, a skip, a retry and an adoption, one after another in any order, while files trickle in.

Every row of every file is in the table once, but for what was skipped and not replayed since. A job without Spark does the
work; all else is what ships.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.dataplane.ports import ASSIGN
from rota.people.adopt import adopt
from rota.people.rename import rename
from rota.people.retry import retry
from rota.people.skip import skip
from rota.run.replay import ReplayedRange, replay
from tests.dataplane.without_spark.trickle import Trickle


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
    end = one.ports.source.observe((one.partition(),), ASSIGN).ends[one.partition()]
    assert end == (stands or 0) + 1
    assert skip(one.world.tree, one.ports, one.partition(), end) == (stands, end)
    one.forget("a", numbers)
    one.skipped += numbers


def do_retry(one: Trickle) -> None:
    """A file that changed between its offset and its reading."""
    name, numbers = one.land()
    one.ports.source.observe((one.partition(),), ASSIGN)
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
