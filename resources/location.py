"""A resource whose fields the code location sets, and nobody else."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import PrivateAttr


class LocationResource(dg.ConfigurableResource[Any]):
    """Law: a launchpad shows none of its fields, and no run's config sets one: they are the code location's, and some are
    secrets."""

    _made: dg.ResourceDefinition | None = PrivateAttr(default=None)

    def get_resource_definition(self) -> Any:
        """What Dagster runs; the same each time, as Dagster wants it."""
        if self._made is None:

            @contextmanager
            def start(_: dg.InitResourceContext) -> Iterator[Any]:
                with self.process_config_and_initialize_cm() as ready:
                    yield ready

            self._made = dg.ResourceDefinition(start, config_schema={}, description=self.__doc__)
        return self._made
