"""One Spark server for all processes that run the tests: the first process starts it, the last one ends it.

To start and to warm up costs a Spark some fifteen seconds of a core, as much as a hundred of the tests' queries.
Law: a test may take its slots for some seconds, and no more. What fills its disk or kills it is in test_disturbed_spark.
"""

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.dataplane.world import start_spark

SLOTS = 4  # a job of the tests is one task: as many processes do not wait for each other


@contextmanager
def share_spark(folder: Path) -> Iterator[str]:
    """The endpoint of the server whose users share `folder`. A dead process has left, too: the system frees its locks."""
    note = folder / "spark.json"
    with (folder / "spark.users").open("ab") as users:
        with lock(folder):
            if not note.exists():
                server, endpoint = start_spark(folder / "spark", SLOTS)
                note.write_text(json.dumps([server.pid, endpoint]))
                server.returncode = 0  # else its object warns as it goes: another process may end the server
            pid, endpoint = json.loads(note.read_text())
            fcntl.flock(users, fcntl.LOCK_SH)
        yield endpoint
        with lock(folder), suppress(BlockingIOError):  # others use it still
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            note.unlink()
            os.killpg(pid, signal.SIGKILL)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """No other process comes or leaves meanwhile."""
    with (folder / "spark.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
