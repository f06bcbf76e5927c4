"""Spark as Dagster connects to it: a thin client of the owner's own server, made when it is first needed."""

from contextlib import suppress
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import PrivateAttr

if TYPE_CHECKING:
    from dagster_pyspark import LazyPySparkResource
    from pyspark.sql import SparkSession


class SparkResource(dg.ConfigurableResource):
    """dagster-pyspark's lazy session, with `spark.remote` = the endpoint of the worker that the run works for.

    Law: a run that needs no Spark starts none; one that works for several workers holds one session at a time.
    The server's token comes from this process's environment, never from the endpoint. `config` goes to every session
    (`spark.sql.*` and the like).
    """

    config: dict[str, str] = {}  # noqa: RUF012 (a pydantic field)
    _held: "tuple[str | None, LazyPySparkResource] | None" = PrivateAttr(default=None)

    def connect(self, endpoint: str | None) -> "SparkSession":
        """The session of `endpoint` (`sc://host:port`); of this process when there is none."""
        from dagster_pyspark import LazyPySparkResource

        from rota.dataplane.token import secured

        if self._held and self._held[0] != endpoint:
            self._held[1].spark_session.stop()  # else the builder hands out the other worker's session
            self._held = None
        if self._held is None:
            remote = {"spark.remote": secured(endpoint)} if endpoint else {"spark.master": "local[*]"}
            self._held = (endpoint, LazyPySparkResource(spark_config={**self.config, **remote}))
        return self._held[1].spark_session

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 (Dagster's signature)
        """The server lives on for other runs: what this one held there is given back."""
        if self._held:
            with suppress(Exception):  # the server may be gone; then there is nothing to give back
                self._held[1].spark_session.stop()
            self._held = None
