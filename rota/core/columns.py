"""Columns as runs of equal values. A settled group has few runs beside its partitions: what a law asks of a run costs
nothing for each partition in it, and where every run has length 1 nothing is lost."""

import numpy as np

from rota.core.values import Codes, Ints

LONG = 50_000  # rows; counting the runs of a shorter column saves nothing


def runs(*columns: Codes) -> tuple[Ints, Ints]:
    """Where each longest stretch begins in which no column changes, and its length."""
    size = len(columns[0])
    changes = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        changes |= column[1:] != column[:-1]
    edge = np.flatnonzero(changes)
    edges = np.empty(len(edge) + 2, np.int64)
    edges[0], edges[1:-1], edges[-1] = 0, edge + 1, size
    start = edges[:-1] if size else edges[:0]
    return start, edges[1:][: len(start)] - start


def counted(column: Codes, workers: int, weight: np.ndarray | None = None) -> np.ndarray:
    """How many (or how much weight) each worker has in `column`; codes below 0 count nowhere."""
    if weight is None and len(column) > LONG and len(column) > 8 * np.count_nonzero(column[1:] != column[:-1]):
        start, length = runs(column)
        return counted(column[start], workers, length).astype(np.int64)
    if int(column.min(initial=0)) < 0:
        held = column >= 0
        column, weight = column[held], None if weight is None else weight[held]
    found = np.bincount(column, weight, minlength=workers)
    return (
        found if weight is None else found.astype(np.float64, copy=False)
    )  # of nothing, bincount counts whole numbers
