"""A Spark is warm after jobs like those of a pipeline; a Spark that cannot run them reports why."""

import sys
from pathlib import Path

import pytest

from rota.dataplane.spark import session
from rota.dataplane.spark.spark_server import AGAIN, SparkServer, SparkSettings
from rota.dataplane.spark.warming import warm
from tests.processes import list_below
from tests.waiting import wait_until


def test_it_reads_and_writes_and_leaves_no_file(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spark = session.fit_session(session.open_session(endpoint))
    warm(spark, local=True)
    warm(spark, local=False)
    spark.stop()
    assert not list(tmp_path.glob("rota-warm-*"))


@pytest.mark.parametrize("works", [True, False])
def test_a_server_is_able_once_its_first_jobs_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """Then its Python has imported what a task needs. If the Python fails, the server never is able, and reports why."""
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    if not works:
        monkeypatch.setenv("PYSPARK_PYTHON", str(broken))
    now = 0.0
    server = SparkServer("warm", SparkSettings("local[1]"), tmp_path / "spark", clock=lambda: now)
    try:
        server.start()
        wait_until(server.ready)
        assert server.explain_unable() == "its first job is not done"
        why = wait_until(lambda: "warm" if not (said := server.explain_unable()) else said * ("failed" in said))
        if works:
            assert why == "warm"
            started = list_below(server.pid).values()
            assert any({sys.executable, "rota.dataplane.spark.python_daemon"} <= set(one) for one in started)
            return
        assert why.startswith("its first job failed: ")
        assert server.explain_unable() == why, "it is repeated later"
        now += AGAIN
        assert server.explain_unable() == "its first job is not done"
    finally:
        server.stop()


def test_a_local_server_that_does_not_warm_is_able_at_once(tmp_path: Path) -> None:
    """So for a group's first worker: no other worker would consume its partitions meanwhile."""
    server = SparkServer("cold", SparkSettings("local[1]"), tmp_path / "spark")
    assert server.explain_unable() == "its first job is not done"
    server.stop()
    server = SparkServer("cold", SparkSettings("local[1]"), tmp_path / "spark")
    server.warms = False
    assert server.explain_unable() == ""
    server.stop()
