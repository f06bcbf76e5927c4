"""No rule of a protocol leaves a partition without owner for ever: whatever `assigned` would place ends with an owner."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core import Partition, Worker, plan
from rota.core.protocols.observation import Observation
from rota.core.protocols.stranded import Rescue, rescue_stranded
from rota.core.values import Policy, Snapshot
from tests.core.exact_solver import may_hold
from tests.core.protocol_town import EVEN, EVERY, HOPPING, PUBLISHED, Town, town

GREEDY = ("claim", {"steal": "published", "strategy": "greedy"})
BIG = {"size": "big"}
LATE = {"delay": 5.0}  # of the published race: far above the time between two looks, so that nothing hops


def count_starved(group: Town) -> int:
    """How many partitions have no owner although `assigned` would place them; what it leaves out waits."""
    snapshot = Snapshot.of(list(group.workers.values()), group.partitions, group.owners)
    waiting = plan(snapshot, policy=Policy(budget=0)).unassigned
    return len(group.partitions) - len(group.owners) - len(waiting)


def list_breaches(group: Town) -> list[str]:
    """The partitions at a worker that may not hold them, and the workers above their caps."""
    parts, held = {p.id: p for p in group.partitions}, Counter(group.owners.values())
    wrong = [p for p, owner in group.owners.items() if not may_hold(group.workers[owner], parts[p], owner)]
    return wrong + [
        w.id for w in group.workers.values() if w.max_partitions is not None and held[w.id] > w.max_partitions
    ]


def draw_workers(data: st.DataObject, names: list[str]) -> dict[str, Worker]:
    caps, states = st.sampled_from([None, None, 1, 2, 4]), st.sampled_from(["active"] * 4 + ["cordoned", "draining"])
    labels = st.sampled_from([{}, {}, BIG])
    return {
        name: Worker(name, max_partitions=data.draw(caps), state=data.draw(states), labels=data.draw(labels))
        for name in names
    }


def draw_partitions(data: st.DataObject, count: int, names: list[str]) -> tuple[Partition, ...]:
    pins, labels = st.sampled_from([None, None, None, *names]), st.sampled_from([{}, {}, {}, BIG])
    return tuple(Partition(f"p:{n}", source="p", pin=data.draw(pins), requires=data.draw(labels)) for n in range(count))


@pytest.mark.parametrize(("protocol", "options"), [*EVEN, *PUBLISHED, GREEDY])
@given(data=st.data())
@settings(max_examples=40)
def test_whatever_people_ask_for_nothing_starves_and_then_nothing_moves(
    protocol: str, options: dict[str, Any], data: st.DataObject
) -> None:
    """Pins, labels, caps, cordons, drains and a pause, from the start or while everything is held: two workers took from
    each other for ever, one asked for more than its cap, and what was pinned to a full worker had no owner."""
    names = [f"w{n}" for n in range(data.draw(st.integers(1, 4)))]
    group = town(protocol, count := data.draw(st.integers(1, 10)), **options)
    group.join(*names)
    if data.draw(st.booleans()):
        group.settle(60)
    group.workers = draw_workers(data, names)
    group.partitions, group.paused = draw_partitions(data, count, names), data.draw(st.booleans())
    group.settle(60)
    assert count_starved(group) == 0
    assert list_breaches(group) == []
    assert group.settle() == 0


def crowd(protocol: str, options: dict[str, Any]) -> Town:
    """Of five partitions one is pinned to a worker that may hold one only, and holds another."""
    hops = (protocol, options) == HOPPING
    group = town(protocol, 5, **options | (LATE if hops else {}))

    def rest() -> None:
        group.run(130) if hops else group.settle(60)

    group.join("w0", max_partitions=1)
    group.join("w1")
    rest()
    theirs = min(p for p, w in group.owners.items() if w == "w1")
    group.partitions = tuple(replace(p, pin="w0") if p.id == theirs else p for p in group.partitions)
    rest()
    return group


@pytest.mark.parametrize(("protocol", "options"), [*EVERY, GREEDY])
def test_what_is_pinned_to_a_worker_that_is_full_has_room_made_for_it(protocol: str, options: dict[str, Any]) -> None:
    group = crowd(protocol, options)
    (pinned,) = (p.id for p in group.partitions if p.pin)
    assert group.owners[pinned] == "w0"
    assert group.counts == [4, 1], "and what made room has an owner"


@pytest.mark.parametrize(
    ("module", "protocol", "options"), [("claim", *PUBLISHED[0]), ("race", "race", {}), ("race", *HOPPING)]
)
def test_without_the_rescue_it_starves(
    module: str, protocol: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: Callable[..., Rescue] = lambda *_: Rescue()  # noqa: E731
    monkeypatch.setattr(f"rota.core.protocols.{module}.rescue_stranded", nothing)
    assert count_starved(crowd(protocol, options)) > 0


@given(data=st.data())
def test_where_every_worker_may_hold_everything_nothing_is_stranded(data: st.DataObject) -> None:
    """So a published rule stays as published, whatever the owners and however many are to be placed."""
    group = town("claim", data.draw(st.integers(0, 12)))
    group.join(*(names := [f"w{n}" for n in range(data.draw(st.integers(1, 4)))]))
    for partition in group.partitions:
        if (owner := data.draw(st.sampled_from([None, *names]))) is not None:
            group.owners[partition.id] = owner
            group.targets[owner] |= {partition.id}
    seen: Observation = group.see("w0")
    held = seen.find_holders()
    most = {name: -(-len(group.partitions) // len({*held.values(), name})) for name in names}
    assert rescue_stranded(seen, held, most) == Rescue()
