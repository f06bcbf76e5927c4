"""Columns as runs of equal values. A settled group has few runs beside its partitions: what a law asks of a run costs
nothing for each partition in it, and where every run has length 1 nothing is lost."""

import numpy as np

from rota.core.values import Codes, Ints


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
