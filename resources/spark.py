"""The Spark of a run: a thin client of the owner's Spark Connect server, created when it is first needed."""

from contextlib import suppress
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import PrivateAttr

from rota.dagster.resources.location import LocationResource

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


class SparkResource(LocationResource):
    """The lazy session of dagster-pyspark, with the endpoint of the run's worker as `spark.remote`.

    Laws: a run that needs no Spark opens no session. A run for several workers has one session at a time. The server's
    token comes from this process's environment, never from the endpoint.

    Args:
        config: settings for every session, such as `spark.sql.*`.
        remote: the server for your own assets (`sc://host:port`); empty: Spark runs inside their run.
    """

    config: dict[str, str] = {}  # noqa: RUF012 (a pydantic field)
    remote: str = ""
    _held: "tuple[str | None, SparkSession] | None" = PrivateAttr(default=None)

    @property
    def spark_session(self) -> "SparkSession":
        """Return the session for your own assets, as dagster-pyspark's resources do."""
        return self._open(self.remote or None)

    def connect(self, endpoint: str | None) -> "SparkSession":
        """Return the session at a worker's `endpoint` (`sc://host:port`), or a local one if it is None. Raises
        EnvironmentFailed.
        """
        from rota.dataplane.spark.session import share_python

        return self._open(endpoint, share_python)

    def _open(
        self, endpoint: str | None, fit: "Callable[[SparkSession], SparkSession] | None" = None
    ) -> "SparkSession":
        """Return the open session, or replace it by a new one; `fit` adapts a new client."""
        from dagster_pyspark import LazyPySparkResource

        from rota.dataplane.spark.token import add_token

        if self._held and self._held[0] != endpoint:
            self._held[1].stop()  # else the builder returns the other worker's session
            self._held = None
        if self._held is None:
            remote = {"spark.remote": add_token(endpoint)} if endpoint else {"spark.master": "local[*]"}
            session = LazyPySparkResource(spark_config={**self.config, **remote}).spark_session
            self._held = (endpoint, fit(session) if fit and endpoint else session)
        return self._held[1]

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 (Dagster's signature)
        """End the run's session. The server serves other runs."""
        if self._held:
            with suppress(Exception):  # the server may be gone, and the session with it
                self._held[1].stop()
            self._held = None
