"""A run from own record to checkpoint, on a real Spark server and real tables."""

from rota.consume import Committed, Idle
from tests.dataplane.conftest import NO_DAMAGE, damage
from tests.dataplane.world import World


def test_what_lands_is_consumed_once(world: World) -> None:
    for key, files in (("carrier=AA", 3), ("b", 1)):
        for i in range(files):
            world.rows(key, str(i), 10)
    world.give("carrier_3dAA", "b")
    events = world.run("carrier_3dAA", "b")
    assert all(isinstance(e, Committed) for e in events), events
    assert {e.partition: (e.start, e.end, e.rows, e.lag) for e in events} == {
        "p-carrier_3dAA": (0, 3, 30, 0),
        "p-b": (0, 1, 10, 0),
    }
    assert {type(e) for e in world.run("carrier_3dAA", "b")} == {Idle}
    world.rows("b", "later", 5)
    (event, _) = sorted(world.run("carrier_3dAA", "b"), key=lambda e: e.partition)
    assert (event.start, event.end, event.rows) == (1, 2, 5)
    assert damage(world.table / "main", {"p-carrier_3dAA": {0: 10, 1: 10, 2: 10}, "p-b": {0: 10, 1: 5}}) == NO_DAMAGE
    checkpoints = world.tree.checkpoints()
    assert {p: (c.record.offset, c.record.rows) for p, c in checkpoints.items()} == {
        "p-carrier_3dAA": (3, 30),
        "p-b": (2, 5),
    }
