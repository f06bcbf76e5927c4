"""The installed versions of Spark, gRPC, the system etc. have the texts that rota interprets."""

import errno
import json
import os
from pathlib import Path
from zipfile import ZipFile

import deltalake
import grpc
import obstore
import pyspark
import pytest
from pyspark import errors

from rota.dataplane.spark.session import take_first_line
from rota.dataplane.spark.words import ANALYSIS, EARLY, ENVIRONMENT, GUESS, STUCK, TOKEN, UNRESOLVED, WRAPPED
from rota.deltalog.features import CHANGED, UNREAD
from rota.machine import free_port
from rota.stores import DETAILS

SPARK = Path(pyspark.__file__).parent
CLASSES = "org/apache/spark"


def read_class(jar: str, name: str) -> bytes:
    """Return a compiled class from one of Spark's jars: it contains its texts."""
    (path,) = SPARK.glob(f"jars/{jar}_*.jar")
    with ZipFile(path) as packed:
        return packed.read(f"{CLASSES}/{name}.class")


@pytest.mark.parametrize(
    ("jar", "name", "words"),
    [
        ("spark-core", "executor/Executor$TaskReaper", ("Killed task ", " could not be stopped within ")),
        ("spark-core", "scheduler/DAGScheduler", ("SparkContext was shut down",)),
        ("spark-core", "SparkContext", ("stopped SparkContext",)),
        ("spark-core", "ExecutorLostFailure", ("ExecutorLostFailure",)),
        ("spark-core", "memory/SparkOutOfMemoryError", ("SparkOutOfMemoryError",)),
        ("spark-network-common", "network/client/TransportClientFactory", ("Failed to connect",)),
        ("spark-connect", "sql/connect/service/PreSharedKeyAuthenticationInterceptor", (TOKEN,)),
    ],
)
def test_spark_has_it(jar: str, name: str, words: tuple[str, ...]) -> None:
    said = read_class(jar, name)
    assert [word for word in words if word.encode() not in said] == []


def test_each_of_these_is_read() -> None:
    assert STUCK.search("WARN Killed task 17 could not be stopped within 120000 ms")
    for said in ("SparkContext was shut down", "stopped SparkContext", "ExecutorLostFailure", "Failed to connect to"):
        assert ENVIRONMENT.search(said)


def test_spark_has_these_conditions() -> None:
    (path,) = SPARK.glob("jars/spark-common-utils_*.jar")
    with ZipFile(path) as packed:
        known = json.loads(packed.read("error/error-conditions.json"))
    inside = {f"{name}.{part}" for name, one in known.items() for part in one.get("subClass", {})}
    here = json.loads((SPARK / "errors/error-conditions.json").read_text())
    servers = ("UNABLE_TO_ACQUIRE_MEMORY", "OPERATION_CANCELED", "JOB_CANCELLED")
    sessions = ("SESSION_CLOSED", "SESSION_NOT_FOUND", "SESSION_CHANGED")
    for name in (*servers, *sessions):
        assert any(name in one for one in known.keys() | inside), name
    assert {"PYTHON_VERSION_MISMATCH", *EARLY.pattern.split("|")} <= here.keys()
    for name in (*servers, *sessions, "PYTHON_VERSION_MISMATCH"):
        assert ENVIRONMENT.search(f"[{name}]")
    (guess,) = known["CANNOT_RESOLVE_DATAFRAME_COLUMN"]["message"]
    assert GUESS.sub("", guess) == "Cannot resolve dataframe column <name>."


def test_pyspark_has_these_errors() -> None:
    from pyspark.errors.exceptions import connect

    own = {name for name in (*ANALYSIS, *WRAPPED) if hasattr(errors, name) or hasattr(connect, name)}
    assert own == {*ANALYSIS, *WRAPPED} - {"Py4JJavaError"}  # py4j has that


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED]
)
def test_grpc_names_its_codes_so(code: grpc.StatusCode) -> None:
    assert ENVIRONMENT.search(f"status = {code}")


def test_grpc_reports_what_happened() -> None:
    with grpc.insecure_channel(f"127.0.0.1:{free_port()}") as channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary("/no/answer")(b"")
    assert take_first_line(raised.value).startswith("failed to connect to all addresses")


@pytest.mark.parametrize(
    "number",
    [
        errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.ESTALE, errno.ENOTCONN,
        errno.EREMOTEIO, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ENOMEM, errno.EMFILE, errno.ECONNREFUSED, errno.ECONNRESET,
    ],
    ids=errno.errorcode.get,
)  # fmt: skip
def test_the_system_has_it(number: int) -> None:
    assert ENVIRONMENT.search(os.strerror(number))


def test_ivy_has_it() -> None:
    (path,) = SPARK.glob("jars/ivy-*.jar")
    with ZipFile(path) as packed:
        assert UNRESOLVED.encode() in packed.read("org/apache/ivy/core/report/ResolveReport.class")


def test_delta_rs_has_it() -> None:
    (library,) = Path(deltalake.__file__).parent.glob("_internal*.so")
    said = library.read_bytes()
    assert [word for word in (*UNREAD, CHANGED) if word.encode() not in said] == []


def test_obstore_has_it() -> None:
    (library,) = Path(obstore.__file__).parent.glob("_obstore*.so")
    assert DETAILS.strip().encode() in library.read_bytes()
