"""The report of a dead Spark states how it died; and a process uses the Spark session that it opened last."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rota import machine
from rota.dataplane.spark.spark_server import SparkServer, SparkSettings
from tests.waiting import LONG, wait_until

TELLING = """
import time
print("ERROR TaskSchedulerImpl: Lost executor 7", flush=True)
time.sleep(600)
"""
TWICE = """
from pyspark.sql import SparkSession
from rota.dataplane.spark import session
session.share_python = lambda spark: session.make_active(spark)  # no server answers there
first, second = session.open_session("sc://127.0.0.1:1"), session.open_session("sc://127.0.0.1:2")
print(SparkSession.getActiveSession() is second, flush=True)
second.client.release_session = second.client.close = lambda: None
second.stop()
print(SparkSession.active() is first, flush=True)
import os
os._exit(0)  # a session that is closed would ask its server for long
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkServer]:
    monkeypatch.setattr(machine, "LAUNCH", TELLING)
    server = SparkServer("w", SparkSettings(), tmp_path / "scratch")
    yield server
    server.stop()


def test_what_killed_a_server_is_not_the_last_error_in_its_log(server: SparkServer) -> None:
    pid = server.start()
    wait_until(lambda: "Lost executor" in server.log.read_text())
    psutil.Process(pid).send_signal(signal.SIGKILL)
    wait_until(lambda: server.pid is None)
    assert server.last_words() == "it was killed by SIGKILL"


def test_a_server_that_ended_by_itself_has_its_own_reason_and_not_an_earlier_one(
    server: SparkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "LAUNCH", "print('ERROR of the first')")
    server.start()
    wait_until(lambda: server.pid is None)
    assert server.last_words() == "ERROR of the first"
    monkeypatch.setattr(machine, "LAUNCH", "print('bye')")
    server.start()
    wait_until(lambda: server.pid is None)
    assert server.last_words() == "bye"


def test_the_session_that_was_opened_last_is_the_active_one() -> None:
    """A transform used the first session to parse a type, whose Spark was gone: four partitions were parked."""
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=LONG)
    assert done.stdout == "True\nTrue\n", done.stderr
