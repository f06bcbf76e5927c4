"""The same as `definitions`, declared in YAML: a component of Dagster's."""

import os
from typing import Any

import dagster as dg

from rota.dagster.location import definitions


class PipelinesScaffolder(dg.Scaffolder[Any]):
    """Makes the files of a `PipelinesComponent` for `dg scaffold defs`, such that `dg check defs` passes at once."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the YAML file, and make the folder that it names: `pipelines` beside `defs`, inside the package."""
        above = request.target_path.parents
        defs = next((path for path in above if path.name == "defs"), above[0])
        folder = defs.parent / "pipelines"
        folder.mkdir(exist_ok=True)
        dg.scaffold_component(request, {"pipelines": os.path.relpath(folder, request.target_path)})


@dg.scaffold_with(PipelinesScaffolder)
class PipelinesComponent(dg.Component, dg.Model, dg.Resolvable):
    """Serves every pipeline file of a folder. Credentials and addresses come from the environment (ROTA_*).

    `pipelines` is the folder; a relative one is below the folder of the YAML file. `key_prefix` begins each asset key,
    partition set, job and sensor.
    """

    pipelines: str = "pipelines"
    key_prefix: str | None = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of the folder, as `rota.dagster.definitions` does. Raises ConfigError."""
        return definitions(context.path / self.pipelines, key_prefix=self.key_prefix)
