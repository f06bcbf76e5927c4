"""A transform that hangs in the run's own Python, outside of Spark, ends at the deadline."""

import faulthandler
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rota.dataplane.spark import driver_time
from rota.dataplane.spark.driver_time import limit_driver
from rota.errors import BadTransform

ROOT = Path(__file__).parents[3]


def loop() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(1e6)


def read_socket() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.recv(1)


def read_pipe() -> None:
    here, there = os.pipe()
    with os.fdopen(here), os.fdopen(there, "w"):
        os.read(here, 1)


def wait_for_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def retry_for_ever() -> None:
    while True:
        with suppress(Exception):
            time.sleep(1e6)


def catch_all_once() -> None:
    try:
        time.sleep(1e6)
    except BaseException:  # as a careless `except:` does
        time.sleep(1e6)


def wait_for_child() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"]) as child:
        try:
            child.wait()
        finally:
            child.kill()


HANGS = [loop, sleep, read_socket, read_pipe, wait_for_lock, retry_for_ever, catch_all_once, wait_for_child]


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Assert that the signal and the timer are restored."""
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("hang", HANGS)
def test_each_way_to_hang_ends_at_the_deadline_and_names_its_line(
    hang: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_time, "AGAIN", 0.1)
    with pytest.raises(BadTransform) as raised, limit_driver(0.1, __file__):
        hang()
    assert raised.value.facts["everywhere"]
    line = re.search(r"did not return within 0.1 s: it is at test_driver_time.py, line (\d+)", str(raised.value))
    assert line, raised.value
    code = hang.__code__
    assert int(line[1]) in {at for _, _, at in code.co_lines()}, raised.value


@pytest.mark.parametrize("guarded", [True, False])
def test_without_the_timer_it_still_hangs(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: here the transform returns after a while; a service that never answers would not."""
    if not guarded:
        monkeypatch.setattr(signal, "setitimer", lambda *_: (0.0, 0.0))
    ended = False
    with suppress(BadTransform), limit_driver(0.1, __file__):
        time.sleep(0.5)
        ended = True
    assert ended is not guarded


def test_what_is_in_time_or_has_no_deadline_is_left_alone() -> None:
    for seconds in (60.0, float("inf"), 1e300):
        with limit_driver(seconds, __file__):
            pass
    with pytest.raises(ZeroDivisionError), limit_driver(60.0, __file__):
        1 / 0  # noqa: B018


def test_what_waits_for_spark_is_left_to_the_deadline_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark cancels the query, and raises its own error: a second interrupt would replace it."""
    monkeypatch.setattr(driver_time, "AGAIN", 0.05)
    query = eval("lambda wait: wait(0.5)", {"__name__": "pyspark.sql.connect.client"})
    with limit_driver(0.1, __file__):
        query(time.sleep)


def test_in_another_thread_the_process_has_its_bound_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    armed: list[float] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: armed.append(seconds))

    def call() -> None:
        with limit_driver(5.0, __file__):
            pass

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert armed == [5.0 + driver_time.GRACE]


def test_a_process_that_never_returns_to_python_ends_with_its_stacks() -> None:
    """A C library that keeps the interpreter's lock: no signal handler of Python runs."""
    script = (
        "import ctypes; from rota.dataplane.spark import driver_time\n"
        "driver_time.GRACE = 0.3\n"
        "c, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)\n"
        "with driver_time.limit_driver(0.1, None): c.pthread_mutex_lock(mutex), c.pthread_mutex_lock(mutex)"
    )
    of = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=of, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "line 4 in <module>" in done.stderr
