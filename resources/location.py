"""A resource whose fields only the code location sets."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import PrivateAttr


class LocationResource(dg.ConfigurableResource[Any]):
    """A resource without a launchpad form.

    Law: neither a launchpad nor a run's config contains its fields. They belong to the code location, and some are
    secrets.
    """

    _made: dg.ResourceDefinition | None = PrivateAttr(default=None)

    def get_resource_definition(self) -> Any:
        """Return the definition that Dagster runs; always the same object, as Dagster requires."""
        if self._made is None:

            @contextmanager
            def start(_: dg.InitResourceContext) -> Iterator[Any]:
                with self.process_config_and_initialize_cm() as ready:
                    yield ready

            self._made = dg.ResourceDefinition(start, config_schema={}, description=self.__doc__)
        return self._made
