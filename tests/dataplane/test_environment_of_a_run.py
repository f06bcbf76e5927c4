"""Which Spark a run uses, and what it reports about it."""

import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from rota.dataplane.spark import session, words
from rota.dataplane.spark.failures import explain_cause
from rota.dataplane.spark.spark_server import OPTIONS, SparkSettings
from rota.errors import EnvironmentFailed

ROOT = Path(__file__).parents[2]


def test_a_worker_without_endpoint_works_in_the_runs_own_process(tmp_path: Path) -> None:
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith("SPARK")
    }  # a thin client in this process sets some
    light = shlex.quote(f"{OPTIONS}={SparkSettings().complete(0, tmp_path)[OPTIONS]}")
    clean["PYSPARK_SUBMIT_ARGS"] = f"--conf {light} pyspark-shell"
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("local_run.py")), str(tmp_path)],
        env={**clean, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "CommittedBatch 7\n"), done.stderr


JAVA = """Job aborted

JVM stacktrace:
org.apache.spark.SparkException
\tat org.apache.Some.method
Caused by: java.io.IOException: No space left on device
"""
PYTHON = """[PYTHON_EXCEPTION] An exception was thrown
  File 'a.py', line 3
ValueError: no antidote
 SQLSTATE: 38000
"""
GRPC = """<_MultiThreadedRendezvous of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "Socket closed"
\tdebug_error_string = "UNAVAILABLE:Error received from peer"
>"""


@pytest.mark.parametrize("reported", [True, False], ids=["as it is", "silently"])
def test_a_setting_that_spark_does_not_take_is_reported_and_the_others_are_set(
    endpoint: str, reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that only warns of a refused setting continues with other settings than the user's."""
    from pyspark.sql.connect.conf import RuntimeConf

    tell = RuntimeConf.set

    def only_warn(conf: RuntimeConf, name: str, value: str) -> None:
        try:
            tell(conf, name, value)
        except PySparkException as error:
            warnings.warn(str(error), stacklevel=1)

    if not reported:
        monkeypatch.setattr(RuntimeConf, "set", only_warn)
    spark = session.fit_session(session.open_session(endpoint))
    try:
        assert {name: spark.conf.get(name) for name in session.SETTINGS} == session.SETTINGS
        monkeypatch.setitem(session.SETTINGS, "spark.executor.memory", "3g")  # refused
        if reported:
            with pytest.raises(EnvironmentFailed, match=r"spark\.executor\.memory"):
                session.fit_session(spark)
        else:
            with pytest.warns(UserWarning, match=r"spark\.executor\.memory"):  # and the run goes on
                session.fit_session(spark)
    finally:
        spark.stop()


class Lazy(ModuleType):
    """Like a module of `six.moves`: it imports the real module at the first access."""

    def __getattr__(self, name: str) -> object:
        raise ImportError("there is no tkinter here")


def test_code_is_marked_by_what_is_loaded_and_can_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = session.mark_code()
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    odd, own = ModuleType("odd"), ModuleType("own")
    odd.__file__ = tmp_path  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "odd", odd)
    assert session.mark_code() == before
    own.__file__ = str(tmp_path / "own.py")
    monkeypatch.setitem(sys.modules, "own", own)
    (tmp_path / "own.py").write_text("VALUE = 1")
    first = session.mark_code()
    (tmp_path / "own.py").write_text("VALUE = 22")
    assert len({before, first, session.mark_code()}) == 3
    cloudpickle.register_pickle_by_value(own)  # it travels
    try:
        assert session.mark_code() == before
    finally:
        cloudpickle.unregister_pickle_by_value(own)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (JAVA, "IOException: No space left on device"),
        (PYTHON, "ValueError: no antidote"),
        ("something else\nmore", "Exception: something else"),
        (GRPC, "Exception: Socket closed"),
        (GRPC.replace("Socket closed", ""), "Exception: StatusCode.UNAVAILABLE"),
    ],
)
def test_the_innermost_cause_is_reported(text: str, said: str) -> None:
    assert explain_cause(Exception(text)) == said


def test_a_long_name_is_replaced_before_the_text_is_cut() -> None:
    """Cut first, the text would end within the name, and have no cause."""
    name = "n" * 600
    text = f"java.io.IOException: {name} is damaged"
    assert (
        explain_cause(Exception(text), lambda text: text.replace(name, "a/0.csv")) == "IOException: a/0.csv is damaged"
    )
    assert "damaged" not in explain_cause(Exception(text))


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.OutOfMemoryError: Java heap space",
        "StatusCode.UNAVAILABLE",
        "[OPERATION_CANCELED] x",
        "File too large",
        "java.nio.file.AccessDeniedException: s3a://b/k: getFileStatus on s3a://b/k",
        "org.apache.hadoop.fs.s3a.AWSClientIOException: re-open s3a://b/k at 0",
    ],
)
def test_what_is_of_the_environment(text: str) -> None:
    assert words.ENVIRONMENT.search(text)
