"""The measurement of the protocols on a real ZooKeeper: what `python -m benchmarks.protocols --part real` does, in small."""

import pytest

from benchmarks import real
from benchmarks.virtual import Case
from rota.coordination.embedded import EmbeddedZooKeeper


def test_a_worker_that_is_cut_off_is_replaced_when_its_session_ended(
    zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "SESSION", 4.0)
    row = real.measure(zookeeper.hosts, Case("claim", "claim", {}), 30)
    assert (row.join.moves, row.kill.moves) == row.fewest == (2, 3)
    assert row.kill.seconds >= 1.0
    assert row.kill.unowned >= 3 * 1.0
    assert row.doubly == 0
    assert all(row.asked)


def test_groups_in_which_nothing_happens_move_nothing_and_write_nothing(
    zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle and late, side by side: moves an hour, and what one worker reads and writes in a minute. Which reads more is seen
    in a minute, not in two seconds beside other tests."""
    monkeypatch.setattr(real, "STILL", 2.0)
    cases = [(Case(name, name, {}), 20) for name in ("assigned", "claim")]
    found = real.watch_quiet(zookeeper.hosts, cases)
    assert [(one.idle, one.late, one.writes) for one in found.values()] == [(0, 0, 0)] * 2
    assert min(one.reads for one in found.values()) > 0
