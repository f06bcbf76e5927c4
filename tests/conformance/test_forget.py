"""Forgetting workers, partitions and pipelines that are gone."""

import pytest

from rota.coordination import membership, overrides
from rota.coordination.forget import forget_pipeline, forget_worker
from rota.coordination.records import Checkpoint, WorkerOverrides
from rota.coordination.snapshot import read_basis
from rota.errors import ConfigError
from tests.conformance.balanced_group import KEYS, Group


def test_forget_removes_only_what_is_gone_for_good(balanced: Group) -> None:
    overrides.cordon(balanced.tree, "w2")
    with pytest.raises(ConfigError, match="is live"):
        forget_worker(balanced.tree, "w2")
    balanced.agents["w2"].store.close()
    with pytest.raises(ConfigError, match="still has a target"):
        forget_worker(balanced.tree, "w2")
    balanced.rebalance()
    forget_worker(balanced.tree, "w2")
    assert overrides.workers(balanced.tree) == {"w1"}
    assert balanced.tree.read(balanced.tree.paths.worker("w2"), WorkerOverrides) is None


def test_a_pipeline_that_was_taken_away_leaves_the_group_and_comes_back_where_it_was(balanced: Group) -> None:
    tree = balanced.tree
    tree.grow("hotels", ["x"])
    balanced.rebalance()
    overrides.pin(tree, "flights:AA", "w2")
    offset = Checkpoint(offset=7, token=1, run_id="r", rows=1, seconds=1.0, epoch=1)
    tree.put(tree.paths.checkpoint("flights:AA"), offset)
    owned = tree.owned()
    assert set(forget_pipeline(tree, "flights")) == {f"flights:{key}" for key in KEYS}
    assert read_basis(tree).moved
    balanced.rebalance()
    assert {p for target in tree.targets()[1].values() for p in target.partitions} == {"hotels:x"}
    assert tree.overrides().pins == {}
    assert tree.owned() == owned, "a token is never given twice"
    tree.grow("flights", KEYS)
    balanced.rebalance()
    assert len({p for target in tree.targets()[1].values() for p in target.partitions}) == 5
    assert tree.checkpoints()["flights:AA"].record == offset


def test_a_pipeline_in_use_or_unknown_is_not_forgotten(balanced: Group) -> None:
    tree = balanced.tree
    incarnation = tree.live()[0].incarnation
    membership.register_run(tree, "r1", incarnation, ["flights:UA"])
    with pytest.raises(ConfigError, match="Run r1 consumes flights:UA"):
        forget_pipeline(tree, "flights")
    with pytest.raises(ConfigError, match=r"Unknown pipeline 'flight'\. Known: flights"):
        forget_pipeline(tree, "flight")
    assert tree.partitions()["flights"].keys == KEYS
