"""Starts runs from a process that has imported their libraries already.

Dagster's code server starts a run in a process of its own by multiprocessing's "spawn", which imports Dagster, SQLAlchemy,
pandas and PySpark before the first line of the run: two thirds of the processor time of a small batch, and as much of the
time from a dead worker to the next commit. With multiprocessing's "forkserver" one process without threads imports them and
is forked for each run. Law: that process imports nothing of the user's, so a run loads the pipeline files as they are now.
Where Dagster starts runs otherwise, nothing changes.
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
    """Makes "spawn" in this process fork the prepared process, which starts with the first run."""
    if sys.platform == "linux":  # elsewhere forking what these libraries loaded is not safe
        multiprocessing.set_forkserver_preload(PRELOADED)
        spawn = multiprocessing.get_context("spawn")
        spawn.Process = multiprocessing.get_context("forkserver").Process  # type: ignore[misc, assignment]
