"""Tables of a renamed pipeline, and checks of their rows."""

from collections import Counter
from typing import Any

from rota.coordination.overrides import pin
from rota.coordination.parking import park
from rota.dataplane import names
from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.ports import ASSIGN
from rota.ledger.values import Batch
from rota.run.consume import IdlePartition
from rota.run.work import read_lags
from tests.dataplane.conftest import log
from tests.dataplane.counted_bad import make_counter
from tests.dataplane.delta_tables import batch
from tests.dataplane.landing_folders import open_files
from tests.dataplane.stand_ins import no_spark
from tests.dataplane.world import World


def tables(world: World) -> PipelineTables:
    return PipelineTables.of(world.pipeline, world.group, world.tree.meta().id)


def fill(world: World, *files: str, key: str = "a") -> None:
    """Commit these new files as a run does: one row and one bad record per file."""
    world.give(key)
    partition = world.pipeline.partition(key)
    for name in files:
        world.rows(names.folder(key), name, 1)
    (end,) = open_files(world.pipeline).observe((partition,), ASSIGN).ends.values()
    token = world.tree.owned((partition,))[partition].token
    main, aside = tables(world).main, tables(world).quarantine
    claimed = main.claim({partition: token}, {partition: 0})
    made = batch(main, claimed, ends={partition: end})
    side = aside.claim({partition: token}, {partition: 0})
    bad = batch(aside, side, ends={partition: end}, _attempt="string")
    aside.commit(side, Batch(**{**fields(bad), "attempt": made.attempt, "op": "quarantine"}), follows=False)
    main.commit(claimed, made)
    world.run(key, connect=no_spark)  # updates the checkpoint


def fields(one: Batch) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}


def count_rows(world: World, table: str = "main") -> Counter[tuple[object, object]]:
    return Counter((r["_partition"], r["_offset"]) for r in log(world.table / table).rows())


def count_each(partition: str, end: int) -> Counter[tuple[object, object]]:
    return Counter({(partition, offset): 1 for offset in range(end)})


def check_renamed(world: World, old: str, new: str, end: int) -> None:
    """Assert that the new name has all rows of the old one, and that the next files are read once."""
    assert count_rows(world) == count_each(f"{new}:a", end)
    assert count_rows(world, "quarantine") == count_each(f"{new}:a", end)
    counts, (made, *_) = (
        make_counter(past := tables(world).main.read_log()),
        (p for p in past if p.op == "commit"),
    )
    assert counts(f"{new}:a", 0, made.attempt)
    assert read_lags(world.tree, world.ports.source, [f"{new}:a"]) == {f"{new}:a": (end, end)}
    assert world.tree.partitions().keys() == {new}
    assert world.tree.partitions()[new].keys == ("a",)
    assert world.tree.overrides().pins == {f"{new}:a": "w1"}
    assert world.tree.checkpoints().keys() == {f"{new}:a"}
    assert world.tree.checkpoints()[f"{new}:a"].record.run_id == "run"
    assert not world.tree.parked()
    world.give("a")
    assert world.run("a", connect=no_spark) == [
        IdlePartition(
            f"{new}:a", end, world.tree.owned((f"{new}:a",))[f"{new}:a"].token, world.tree.head().record.epoch
        )
    ]
    fill(world, "new")
    assert count_rows(world) == count_each(f"{new}:a", end + 1)


def prepare(world: World) -> None:
    fill(world, "0", "1")
    pin(world.tree, "p:a", "w1")
    world.call("q")
    world.give("a")  # the page was reloaded: the group has both names, and a worker owns the new one
    park(world.tree, "p:a", "mend p:a", offset=2)
