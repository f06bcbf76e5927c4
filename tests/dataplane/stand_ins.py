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
    """Replaces a run's Spark by one that fails. `meanwhile` is called first."""

    def connect(_: str | None) -> Any:
        meanwhile()
        return SimpleNamespace(conf=SimpleNamespace(set=lambda name, value: None))

    return connect


def no_spark(_: str | None) -> Any:
    """The error of the replaced Spark."""
    raise EnvironmentFailed("no Spark here")


def take_over(world: World, worker: str, key: str) -> str:
    """Let another worker claim the partition, under its own target."""
    incarnation = world.join(worker)
    return world.give(key, incarnation=incarnation)


def consume_without_spark(world: World, partition: str, end: int) -> Ledger:
    """Write index, offset and checkpoint as a run does that consumed everything."""
    open_files(world.pipeline).observe((partition,), ASSIGN)
    main = PipelineTables.of(world.pipeline, "g", world.tree.meta().id).main
    token = world.tree.owned((partition,))[partition].token
    claimed = main.claim({partition: token}, {partition: 0})
    main.commit(claimed, batch(main, claimed, ends={partition: end}))
    return main
