"""The same as `definitions`, declared in YAML: a component of Dagster's."""

import dagster as dg

from rota.dagster.location import definitions


class PipelinesComponent(dg.Component, dg.Model, dg.Resolvable):
    """Serves every pipeline file of a folder. Credentials and addresses come from the environment (ROTA_*).

    `pipelines` is the folder; a relative one is below the folder of the YAML file. `key_prefix` begins each asset key,
    partition set, job and sensor.
    """

    pipelines: str = "pipelines"
    key_prefix: str | None = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """What `rota.dagster.definitions` makes of the folder. Raises ConfigError."""
        return definitions(context.path / self.pipelines, key_prefix=self.key_prefix)
