"""Agent and run apart, faults between any two steps of either: nothing doubled, nothing lost, all placed in the end."""

from collections import Counter

import pytest

from tests.core.handover.world import World

CHUNK = 12


@pytest.mark.parametrize("chunk", range(10))
def test_no_fault_between_any_two_steps_does_damage(chunk: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        world = World(seed).play()
        assert not world.checker.damage, world.repro()
        counts += world.counts
    assert counts["faults"] > 100
    assert counts["fenced"] > 0  # else it proved nothing


@pytest.mark.parametrize("chunk", range(5))
def test_without_faults_nobody_is_fenced_or_forced(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        world = World(seed, faults=False).play()
        assert not world.checker.damage, world.repro()
        assert not world.counts["fenced"] + world.counts["claimed-forced"] + world.counts["run-broken"], world.repro()
