"""The measurement of the protocols on a real ZooKeeper: what `python -m benchmarks.protocols --part real` does, in small."""

import pytest

from benchmarks import real
from benchmarks.virtual import Case
from rota.coordination.embedded import EmbeddedZooKeeper


def test_a_worker_that_is_cut_off_is_replaced_when_its_session_ended(
    zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "SESSION", 2.0)
    monkeypatch.setattr(real, "CALM", 1.0)
    row = real.measure(zookeeper.hosts, Case("claim", "claim", {}), 30)
    assert (row.join.moves, row.kill.moves) == row.fewest == (2, 3)
    assert row.kill.seconds >= 1.0
    assert row.kill.unowned >= 3 * 1.0
    assert row.doubly == 0
    assert all(row.asked)
