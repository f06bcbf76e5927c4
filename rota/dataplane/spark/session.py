"""Prepare a Spark session for a run: a dead server is an error in seconds, and every worker writes the same bytes.

Laws: a Spark Connect client raises about three seconds after its server died (Spark's own policy waits ten minutes). If a
server falls silent and is not killed, the client's keepalive raises after some minutes (measured: 143 s). Time zone and
timestamp format do not depend on the machine. A user's modules are sent by value, since the server was started elsewhere
and cannot import them. A run leaves no process behind: all runs of the same code share a server's Python processes.
"""

import os
import site
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rota.dataplane.spark.probe import explain_silence
from rota.dataplane.spark.token import NAME, add_token
from rota.dataplane.spark.words import RPC, TOKEN
from rota.errors import EnvironmentFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession as SparkSession

    Connect = Callable[[str | None], SparkSession]  # of an endpoint, or of None for a session of this process

PATIENCE = 5.0  # seconds for the first answer of a server
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # a batch's files are listed without a job
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.files.openCostInBytes": "262144",  # 512 small files a task, not 32: fewer tasks, and fewer files written
    # 20M rows of Parquet on two cores: two tasks of 128 MB, and a third that waits for one of them, take 15 % longer.
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.sql.optimizer.mapLookupHashThreshold": "0",  # `files/listed.py` looks each row's object up in a literal
    # Above a filter Spark derives constraints in quadratic time: 3,000 columns took minutes. A table uses none of them.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.debug.maxToStringFields": "100000",  # `plans` reads every column
}
ISOLATION = "spark.sql.artifact.isolation.enabled"
# Sessions with equal values share processes of Python: for functions by Arrow, and for other functions.
BUFFERS = ("spark.sql.execution.pandas.udf.buffer.size", "spark.sql.execution.python.udf.buffer.size")
BUFFER = 65_536  # bytes, Spark's default; up to 16 times as many take no longer


def open_session(endpoint: str | None) -> "SparkSession":
    """Return a session of the Spark Connect server at `endpoint`; None: of this process. Raises EnvironmentFailed."""
    from pyspark.sql import SparkSession

    if endpoint:
        return share_python(SparkSession.builder.remote(add_token(endpoint)).create())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else its tasks take the system's python3
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")  # the caller reports a failed job in one line
    return spark


@contextmanager
def keep_session() -> "Iterator[Connect]":
    """Yield a function that opens one session for all jobs of a command. The session ends before its Spark does.

    PySpark's own logs of a failed query, 20 kB of JSON each, are off: the command reports the failure in one line.
    """
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    opened: list[SparkSession] = []

    def connect(endpoint: str | None) -> SparkSession:
        if not opened:
            opened.append(open_session(endpoint))
        return opened[0]

    try:
        yield connect
    finally:
        for session in opened:
            session.stop()


def share_python(spark: "SparkSession") -> "SparkSession":
    """Return a copy of the session, as the active one, and end the session. Python functions of all such copies run in the
    same processes of a server. Raises EnvironmentFailed.

    Otherwise Spark starts a Python for each session, and keeps it after the session's end (SPARK-54055): 37 MB and a thread
    of the server for each run, and 0.8 s of its first batch. The setting is fixed when a session begins, and the server
    sets it for new sessions: only a copy has another value. Files of `addArtifacts` are shared, too.

    A Python process keeps its imports while it has work, so only sessions of the same code may share it. Spark shares a
    process among sessions with equal buffer sizes: the size encodes the code (`mark_code`).
    """
    with _in_time(spark):
        for name, value in {ISOLATION: "false", **dict.fromkeys(BUFFERS, f"{BUFFER + 16 * mark_code()}")}.items():
            spark.conf.set(name, value)
        shared: SparkSession = spark.cloneSession()
        spark.stop()
    return make_active(shared)


def mark_code() -> int:
    """Return a 16-bit checksum of the code that Python on the other side imports by itself: loaded modules that are not
    sent by value and are outside the folders of Python and of rota, and the folders of installed packages. If any of them
    changes, the checksum changes, most likely."""
    from pyspark.cloudpickle.cloudpickle import list_registry_pickle_by_value

    installed = sorted({*site.getsitepackages(), site.getusersitepackages()})
    folders = (sys.prefix, sys.base_prefix, *installed, str(Path(__file__).parents[2]))
    known = tuple(os.path.join(folder, "") for folder in folders)
    travel = list_registry_pickle_by_value()
    files = {_locate(module) for name, module in list(sys.modules.items()) if name not in travel} - {""}
    own = sorted(file for file in files if not file.startswith(known))
    return zlib.crc32(repr([_stat(path) for path in (*own, *installed)]).encode()) & 0xFFFF


def _locate(module: ModuleType) -> str:
    """Return a module's file; empty if it has none. An attribute access would make some modules import others."""
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return file if isinstance(file, str) else ""


def _stat(path: str) -> tuple[str, int, int]:
    """Return the path, its modification time and its size."""
    try:
        found = os.stat(path)
    except OSError:  # such as a file within an archive
        return path, 0, 0
    return path, found.st_mtime_ns, found.st_size


def make_active(spark: "SparkSession") -> "SparkSession":
    """Make the client the active session of this thread, and return it. PySpark would keep the first session, whose server
    may be gone by now. Once the client is stopped, PySpark returns to the first session."""
    kind: Any = type(spark)
    kind._set_default_and_active_session(spark)  # sets both if there is none
    kind._active_session.session = spark
    return spark


@contextmanager
def _in_time(spark: "SparkSession") -> Iterator[None]:
    """Let each call of this session return within seconds, or raise EnvironmentFailed."""
    from pyspark.errors import PySparkException

    if is_remote(spark):
        from pyspark.sql.connect.client.retries import DefaultPolicy

        policy = DefaultPolicy(max_retries=4, initial_backoff=200, backoff_multiplier=2, max_backoff=2000)
        spark.client.set_retry_policies([policy])
    try:
        yield
    except PySparkException as error:
        raise EnvironmentFailed(
            f"Spark does not answer ({take_first_line(error)}). Check the worker's Spark"
        ) from error


def join_session(connect: "Connect", endpoint: str | None, module: ModuleType | None) -> "SparkSession":
    """Return a session of `connect` that is fit for a run. Raises EnvironmentFailed at once if no server answers: a new
    client would retry its first call for ten minutes."""
    if endpoint and (why := explain_silence(endpoint, PATIENCE)):
        raise EnvironmentFailed(f"No Spark answers at {endpoint} ({why}). Is the worker alive? See `rota status`")
    from pyspark.errors import PySparkException

    if module is not None:
        send_by_value(module)
    try:
        return fit_session(connect(endpoint))
    except (PySparkException, EnvironmentFailed) as error:
        if TOKEN not in str(error.__cause__ or error):
            raise
        raise EnvironmentFailed(
            f"Spark at {endpoint} does not take our token. Set {NAME} to the same for its worker and here, or, without it, "
            "run both as one user of one machine"
        ) from None


def fit_session(spark: "SparkSession") -> "SparkSession":
    """Return the session with the settings that a run needs. Raises EnvironmentFailed within seconds."""
    if is_remote(spark):
        make_active(spark)
    with _in_time(spark):
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
    return spark


def is_remote(spark: "SparkSession") -> bool:
    """Whether the session is a Spark Connect client."""
    return "connect" in type(spark).__module__


def send_by_value(module: ModuleType) -> None:
    """Send functions of `module`, and of loaded modules in its folder, as code instead of by name."""
    from pyspark import cloudpickle

    file = _locate(module)
    folder = os.path.join(Path(file).parent, "") if file else None
    for one in list(sys.modules.values()):
        if one is module or (folder and _locate(one).startswith(folder)):
            cloudpickle.register_pickle_by_value(one)


def take_first_line(error: BaseException) -> str:
    """Return the message of a Spark error without its stack; of an error of gRPC, its details or its status."""
    text = str(error).strip() or type(error).__name__
    if said := RPC.search(text):
        text = said[2] or said[1]
    return text.splitlines()[0][:300]
