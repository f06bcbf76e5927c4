"""Forks runs from a process that has imported their libraries.

Dagster's code server starts a run by multiprocessing's "spawn". The new process imports Dagster, SQLAlchemy, pandas and
PySpark before the first line of the run: two thirds of the processor time of a small batch, and of the time from a dead
worker to the next commit. With "forkserver", one process without threads imports them and is forked for each run. Law: that
process imports no file of the user, so a run loads the current pipeline files. Runs with another launcher do not change.
"""

import multiprocessing
import sys

PRELOADED = [
    *("dagster", "dagster._cli", "dagster._grpc.impl", "dagster._core.storage.sqlite_storage", "dagster_pyspark"),
    *("rota.dagster", "rota.run.progress", "rota.dagster.assets.ending", "rota.coordination.client"),
    *("rota.run.serve", "rota.run.answer", "rota.run.replay", "rota.group.rebalance", "rota.face.picture"),
    *("rota.core.assignors.sticky.assignor", "kazoo.client"),
    *("deltalake", "pyarrow.parquet", "pyarrow.dataset", "pandas"),
    *("pyspark.sql.connect.session", "ortools.graph.python.min_cost_flow", "upath.core"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg"),
]


def warm() -> None:
    """Make "spawn" in this process fork the prepared process, which starts with the first run."""
    if sys.platform == "linux":  # on other systems it is not safe to fork after these imports
        multiprocessing.set_forkserver_preload(PRELOADED)
        spawn = multiprocessing.get_context("spawn")
        spawn.Process = multiprocessing.get_context("forkserver").Process  # type: ignore[misc, assignment]
