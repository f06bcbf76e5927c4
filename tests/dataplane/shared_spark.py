"""One Spark server for all processes that run the tests: the first process starts it, the last one ends it.

To start and warm up a Spark takes some fifteen CPU seconds, as much as a hundred queries of the tests.
Law: a test may occupy its slots for some seconds only. Tests that fill its disk or kill it are in test_disturbed_spark.
"""

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.dataplane.world import start_spark

SLOTS = 4  # a job of the tests has one task, so up to four processes do not wait for each other


@contextmanager
def share_spark(folder: Path) -> Iterator[str]:
    """Yield the endpoint of the server whose users share `folder`. A dead process is no user: the system frees its locks."""
    note = folder / "spark.json"
    with (folder / "spark.users").open("ab") as users:
        with lock(folder):
            if not note.exists():
                server, endpoint = start_spark(folder / "spark", SLOTS)
                note.write_text(json.dumps([server.pid, endpoint]))
                server.returncode = 0  # else its object warns when deleted: another process may end the server
            pid, endpoint = json.loads(note.read_text())
            fcntl.flock(users, fcntl.LOCK_SH)
        yield endpoint
        with lock(folder), suppress(BlockingIOError):  # others use it still
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            note.unlink()
            os.killpg(pid, signal.SIGKILL)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Let no other process join or leave in the context."""
    with (folder / "spark.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
