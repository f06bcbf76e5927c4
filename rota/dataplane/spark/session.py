"""A Spark session made fit for a run: a dead server is an error in seconds, and every worker writes the same bytes.

Law: a thin client gives up about three seconds after its server died (Spark's own policy waits ten minutes), and by the
client's own keepalive some minutes after one fell silent that nobody kills (measured: 143 s);
time zone and timestamp format do not depend on the machine; a user's modules travel by value, because the server was
started elsewhere and cannot import them.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rota.dataplane.spark.probe import explain_silence
from rota.dataplane.spark.token import NAME, add_token
from rota.dataplane.spark.words import RPC, TOKEN
from rota.errors import EnvironmentFailed
from rota.record import OFFSET, PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession as SparkSession

    Connect = Callable[[str | None], SparkSession]  # of an endpoint, or of None for a session of this process

PATIENCE = 5.0  # seconds for the first answer of a server
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # a batch's links are listed without a job
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.files.openCostInBytes": "262144",  # 512 small files a task, not 32: fewer tasks, and fewer files written
    # 20M rows of Parquet on two cores: two tasks of 128 MB, and a third that waits for one of them, take 15 % longer.
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.sql.optimizer.mapLookupHashThreshold": "0",  # `files/listed.py` looks each row's object up in a literal
    "spark.sql.debug.maxToStringFields": "100000",  # a plan that is read names every column
}


def open_session(endpoint: str | None) -> "SparkSession":
    """A session of the Spark Connect server at `endpoint`, or of this process where there is none."""
    from pyspark.sql import SparkSession

    if endpoint:
        return _make_active(SparkSession.builder.remote(add_token(endpoint)).create())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else its tasks take the system's python3
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")  # a failed job is told in one line by whoever asked for it
    return spark


def _make_active(spark: "SparkSession") -> "SparkSession":
    """Makes the client the active session of this thread, and returns it. PySpark keeps the first one as that: a transform
    would ask a server that may be gone by now. Once it is stopped PySpark goes back to the first."""
    kind: Any = type(spark)
    kind._active_session.session = spark
    return spark


def join_session(connect: "Connect", endpoint: str | None, module: ModuleType | None) -> "SparkSession":
    """The session that `connect` gives, fit for a run. Raises EnvironmentFailed at once where nobody answers: a client
    that sends its settings first would try for ten minutes."""
    if endpoint and (why := explain_silence(endpoint, PATIENCE)):
        raise EnvironmentFailed(f"No Spark answers at {endpoint} ({why}). Is the worker alive? See `rota status`")
    from pyspark.errors import PySparkException

    try:
        return fit_session(connect(endpoint), module)
    except (PySparkException, EnvironmentFailed) as error:
        if TOKEN not in str(error.__cause__ or error):
            raise
        raise EnvironmentFailed(
            f"Spark at {endpoint} does not take our token. Set {NAME} to the same for its worker and here, or, without it, "
            "run both as one user of one machine"
        ) from None


def fit_session(spark: "SparkSession", module: ModuleType | None) -> "SparkSession":
    """The session with what a run needs. Raises EnvironmentFailed within seconds."""
    from pyspark.errors import PySparkException

    if is_remote(spark):
        from pyspark.sql.connect.client.retries import DefaultPolicy

        policy = DefaultPolicy(max_retries=4, initial_backoff=200, backoff_multiplier=2, max_backoff=2000)
        spark.client.set_retry_policies([policy])
        _make_active(spark)
    if module is not None:
        send_by_value(module)
    try:
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
    except PySparkException as error:
        raise EnvironmentFailed(
            f"Spark does not answer ({take_first_line(error)}). Check the worker's Spark"
        ) from error
    return spark


def find_misread(endpoint: str, schemas: Mapping[str, str]) -> dict[str, str]:
    """Name -> why the Spark at `endpoint` cannot read the schema (DDL) of this name. Raises EnvironmentFailed."""
    from pyspark.errors import PySparkException

    spark, found = join_session(open_session, endpoint, None), {}
    try:
        for name, schema in schemas.items():
            try:
                spark.createDataFrame([], f"{schema}, {PARTITION} string, {OFFSET} bigint")
            except PySparkException as error:
                found[name] = take_first_line(error)
    finally:
        spark.stop()
    return found


def is_remote(spark: "SparkSession") -> bool:
    """Whether the session is a thin client of a server."""
    return "connect" in type(spark).__module__


def send_by_value(module: ModuleType) -> None:
    """Sends functions of `module`, and of loaded modules that lie in its folder, as code instead of by name."""
    from pyspark import cloudpickle

    file = getattr(module, "__file__", None)
    folder = os.path.join(Path(file).parent, "") if file else None
    for one in list(sys.modules.values()):
        where = getattr(one, "__file__", None)
        if one is module or (folder and where and where.startswith(folder)):
            cloudpickle.register_pickle_by_value(one)


def take_first_line(error: BaseException) -> str:
    """What an error of Spark says, without its stack; of gRPC's its details, or its status."""
    text = str(error).strip() or type(error).__name__
    if said := RPC.search(text):
        text = said[2] or said[1]
    return text.splitlines()[0][:300]
