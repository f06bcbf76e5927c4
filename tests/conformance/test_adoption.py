"""Adopting a table raises the token base of the group."""

import pytest

from rota.coordination import membership
from rota.coordination.records import Checkpoint
from rota.coordination.token_base import adopt
from rota.errors import ConfigError
from tests.claiming import claim_one
from tests.conformance.balanced_group import Group


def test_adoption_outgrows_every_token_that_a_table_has_seen(balanced: Group) -> None:
    held = claim_one(balanced.agents["w1"], balanced.names["w1"], "flights:AA", 0)
    run = membership.register_run(balanced.agents["w1"], "run", balanced.names["w1"], ["flights:AA"])
    with pytest.raises(ConfigError, match="still alive: 1 run of group 'default', the first is run"):
        adopt(balanced.tree, 5_000)
    assert balanced.tree.meta().token_base == 0
    balanced.tree.store.set(run, b"torn", -1)
    with pytest.raises(ConfigError, match="still alive: 1 run of group 'default', the first is run"):
        adopt(balanced.tree, 5_000)
    membership.end_run(balanced.agents["w1"], run)
    behind = Checkpoint(offset=2, token=4_999, run_id="adopt")
    balanced.tree.put(balanced.tree.paths.checkpoint("flights:AA"), Checkpoint(offset=9, token=1, run_id="r"))
    assert adopt(balanced.tree, 5_000, {"flights:AA": behind}).token_base > 5_000
    assert balanced.tree.checkpoints()["flights:AA"].record == behind
    after = balanced.tree.owned()["flights:AA"]
    assert after.token > 5_000
    assert after.version == held.version, "the owners are unchanged"
    assert adopt(balanced.tree, 10).token_base == balanced.tree.meta().token_base > 5_000, "it never goes down"
