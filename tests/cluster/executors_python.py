"""The Python of a cluster's executors, as a test wants it: it sees no checkout, whatever is installed for the tests."""

import sys
from pathlib import Path

from rota.local.cluster import PACKAGES_ALONE, write_program

KINDS = {
    "like ours": PACKAGES_ALONE,
    "without packages": f'exec {sys.executable} -S "$@"',
}
# Each task asks for a Python of its own, so that a change is seen at once.
FRESH = {"spark.python.worker.reuse": "false", "spark.python.use.daemon": "false"}


class ExecutorsPython:
    """A program that an executor takes for Python; `become` changes which of `KINDS` it is."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "python"
        self.become("like ours")

    def become(self, kind: str) -> None:
        """From the next task on."""
        write_program(self.path, KINDS[kind])
