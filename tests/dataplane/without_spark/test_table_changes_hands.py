"""A table that was restored by Delta, or taken over by another group."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from rota.dataplane.delta.tables import open_table
from rota.errors import EnvironmentFailed, ForeignTable
from rota.ledger.ledger import Ledger
from rota.people.adopt import adopt
from rota.people.skip import skip
from rota.run.consume import CommittedBatch, IdlePartition, ParkedPartition
from tests.dataplane.conftest import damage
from tests.dataplane.delta_tables import batch, ledger
from tests.dataplane.stand_ins import consume_without_spark, no_spark, pause_run
from tests.dataplane.world import World


def test_a_restored_table_parks_what_it_holds_until_it_is_adopted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if checkpoint, token and id of the table are unchanged. The log is read once for all partitions:
    once for each took hours."""
    for name in ("0", "1"):
        world.rows("a", name, 1)
    world.give("a", "b")
    main = consume_without_spark(world, "p:a", 2)
    assert [type(e) for e in world.run("a")] == [CommittedBatch, IdlePartition]
    DeltaTable(Path(main.location)).restore(1)
    before = DeltaTable(Path(main.location)).version()
    world.rows("a", "2", 1)
    read: list[int] = []
    past = Ledger.read_log
    monkeypatch.setattr(Ledger, "read_log", lambda self, since=-1: read.append(since) or past(self, since))
    event, other = world.run("a", "b", connect=pause_run(lambda: None))
    assert read == [1]
    assert isinstance(other, ParkedPartition), other
    assert isinstance(event, ParkedPartition), event
    assert event.retry_at is None
    assert "(RESTORE) changed rows" in event.reason
    assert "rota adopt" in event.reason
    assert "(of p:a: 0 to 2)" in event.reason
    with pytest.raises(ForeignTable, match="RESTORE"):
        skip(world.tree, world.ports, "p:a")
    assert DeltaTable(Path(main.location)).version() == before
    adopt(world.tree, [world.pipeline])
    assert not world.tree.parked()
    with pytest.raises(EnvironmentFailed, match="no Spark"):
        world.run("a", connect=no_spark)


def test_a_table_that_comes_back_goes_on_where_the_other_group_stopped(tmp_path: Path) -> None:
    """A pipeline moved to another group and back: records that were consumed there are not consumed again."""
    mine, other = ledger(tmp_path), open_table(tmp_path / "main", "h", "1" * 32)
    claimed = mine.claim({"p": 7}, {"p": 0})
    mine.commit(claimed, batch(mine, claimed))
    other.adopt()
    claimed = other.claim({"p": 3}, {"p": 0})
    assert claimed.offsets == {"p": 2}
    other.commit(claimed, batch(other, claimed))
    mine.adopt()
    assert mine.claim({"p": 9}, {"p": 0}).offsets == {"p": 4}


def test_what_the_former_group_has_under_way_is_refused(tmp_path: Path) -> None:
    mine, other = ledger(tmp_path), open_table(tmp_path / "main", "h", "1" * 32)
    first = mine.claim({"p": 7}, {"p": 0})
    mine.commit(first, batch(mine, first))
    zombie = mine.claim({"p": 7}, {"p": 0})
    other.adopt()
    claimed = other.claim({"p": 3}, {"p": 0})
    other.commit(claimed, batch(other, claimed))
    with pytest.raises(ForeignTable):
        mine.commit(zombie, batch(mine, zombie))
    assert damage(Path(mine.location), {"p": dict.fromkeys(range(4), 1)})["doubled"] == 0
