"""Tables of a pipeline that is renamed, and what they hold."""

from collections import Counter
from typing import Any

from rota.dataplane import names
from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.ports import Batch
from tests.dataplane.conftest import log
from tests.dataplane.delta_tables import batch
from tests.dataplane.stand_ins import no_spark
from tests.dataplane.world import World


def tables(world: World) -> PipelineTables:
    return PipelineTables.of(world.pipeline, world.group, world.tree.meta().id)


def filled(world: World, *files: str, key: str = "a") -> None:
    """As if a run had consumed these new files, one row a file, with a bad record beside each."""
    world.give(key)
    partition = world.pipeline.partition(key)
    for name in files:
        world.rows(names.folder(key), name, 1)
    (end,) = FilesSource.of(world.pipeline).assign_offsets((partition,)).values()
    token = world.tree.owned((partition,))[partition].token
    main, aside = tables(world).main, tables(world).quarantine
    claimed = main.claim({partition: token}, {partition: 0})
    made = batch(main, claimed, ends={partition: end})
    side = aside.claim({partition: token}, {partition: 0})
    bad = batch(aside, side, ends={partition: end}, _attempt="string")
    aside.commit(side, Batch(**{**fields(bad), "attempt": made.attempt, "op": "quarantine"}), follows=False)
    main.commit(claimed, made)
    world.run(key, connect=no_spark)  # brings the checkpoint up


def fields(one: Batch) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}


def rows(world: World, table: str = "main") -> Counter[tuple[object, object]]:
    return Counter((r["_partition"], r["_offset"]) for r in log(world.table / table).rows())


def each(partition: str, end: int) -> Counter[tuple[object, object]]:
    return Counter({(partition, offset): 1 for offset in range(end)})
