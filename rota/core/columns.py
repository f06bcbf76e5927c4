"""Columns of owner codes, one row for each partition: their runs, and sums for each worker.

A run is a stretch of rows with equal values, not a Dagster run. A group at rest has far fewer runs than partitions, and
then code that works run by run is faster. `count_per_worker` uses runs only if they are long on average.
"""

import numpy as np

from rota.core.values import Codes, Ints

LONG = 50_000  # rows; counting the runs of a shorter column saves nothing


def find_runs(*columns: Codes) -> tuple[Ints, Ints]:
    """Split the columns into the longest stretches in which no column changes. Return their starts and lengths in rows."""
    size = len(columns[0])
    changes = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        changes |= column[1:] != column[:-1]
    edge = np.flatnonzero(changes)
    edges = np.empty(len(edge) + 2, np.int64)
    edges[0], edges[1:-1], edges[-1] = 0, edge + 1, size
    start = edges[:-1] if size else edges[:0]
    return start, edges[1:][: len(start)] - start


def count_per_worker(column: Codes, workers: int, weight: np.ndarray | None = None) -> np.ndarray:
    """Count the rows of each worker, or sum their `weight`. A code below 0 belongs to no worker."""
    if weight is None and len(column) > LONG and len(column) > 8 * np.count_nonzero(column[1:] != column[:-1]):
        start, length = find_runs(column)
        return count_per_worker(column[start], workers, length).astype(np.int64)
    if int(column.min(initial=0)) < 0:
        held = column >= 0
        column, weight = column[held], None if weight is None else weight[held]
    found = np.bincount(column, weight, minlength=workers)
    # np.bincount of an empty column returns integers
    return found if weight is None else found.astype(np.float64, copy=False)
