"""`rota worker` that waits for an executor as many seconds as its last argument states, then reports that it has none."""

import sys

from rota.cli import main, worker

worker.EXECUTOR_WAIT = float(sys.argv.pop())
sys.argv[:1] = ["rota", "worker"]
main()
