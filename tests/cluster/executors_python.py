"""The Python of a cluster's executors, as a test wants it: it sees no checkout, whatever is installed for the tests.

An installation of rota for its developers is seen by whoever reads the site's `.pth` files, so this Python reads none.
"""

import sys
from pathlib import Path
from sysconfig import get_path

KINDS = {
    "like ours": f'PYTHONPATH="$PYTHONPATH:{get_path("purelib")}" exec {sys.executable} -S "$@"',
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
        unseen = self.path.with_name("unseen")
        unseen.write_text(f"#!/bin/sh\n{KINDS[kind]}\n")
        unseen.chmod(0o755)
        unseen.replace(self.path)
