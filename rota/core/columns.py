"""Columns of owner codes, one row for each partition: runs of equal values, and sums for each worker.

A group at rest has far fewer runs than partitions, so code that works run by run is faster there. A column whose runs all
have length 1 costs no more than without runs.
"""

import numpy as np

from rota.core.values import Codes, Ints

LONG = 50_000  # rows; counting the runs of a shorter column saves nothing


def find_runs(*columns: Codes) -> tuple[Ints, Ints]:
    """Splits the columns into the longest stretches in which none changes. Returns each start and each length in rows."""
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
    """Counts the rows of each worker, or sums their `weight`. A code below 0 belongs to no worker."""
    if weight is None and len(column) > LONG and len(column) > 8 * np.count_nonzero(column[1:] != column[:-1]):
        start, length = find_runs(column)
        return count_per_worker(column[start], workers, length).astype(np.int64)
    if int(column.min(initial=0)) < 0:
        held = column >= 0
        column, weight = column[held], None if weight is None else weight[held]
    found = np.bincount(column, weight, minlength=workers)
    # the bincount of an empty column has integers
    return found if weight is None else found.astype(np.float64, copy=False)
