"""Replacements of Spark and of another owner in tests that need neither."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.ports import ASSIGN
from rota.errors import EnvironmentFailed
from rota.ledger.ledger import Ledger
from tests.dataplane.delta_tables import batch
from tests.dataplane.landing_folders import open_files
from tests.dataplane.world import World


def pause_run(meanwhile: Callable[[], object]) -> Callable[[str | None], Any]:
    """What a run gets as Spark: nothing that works; `meanwhile` happens before the run goes on."""

    def connect(_: str | None) -> Any:
        meanwhile()
        return SimpleNamespace(conf=SimpleNamespace(set=lambda name, value: None))

    return connect


def no_spark(_: str | None) -> Any:
    """A run gets as far as this."""
    raise EnvironmentFailed("no Spark here")


def take_over(world: World, worker: str, key: str) -> str:
    """Another worker claims the partition, under a target of its own."""
    incarnation = world.join(worker)
    return world.give(key, incarnation=incarnation)


def consume_without_spark(world: World, partition: str, end: int) -> Ledger:
    """As if a run had consumed everything: the index, the offset and the checkpoint."""
    open_files(world.pipeline).observe((partition,), ASSIGN)
    main = PipelineTables.of(world.pipeline, "g", world.tree.meta().id).main
    token = world.tree.owned((partition,))[partition].token
    claimed = main.claim({partition: token}, {partition: 0})
    main.commit(claimed, batch(main, claimed, ends={partition: end}))
    return main
