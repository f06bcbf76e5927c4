"""Numbers that depend on ids alone. They break ties between answers that are equally good."""

from collections.abc import Iterable
from zlib import crc32

import numpy as np

from rota.core.values import Ints


def hashed(names: Iterable[str]) -> Ints:
    """A number for each id that depends on nothing else."""
    return np.array(list(map(crc32, map(str.encode, names))), np.int64)


def mixed(rows: Ints, columns: Ints) -> Ints:
    """A number for each pair that no sum of a row's and a column's number explains (or swaps would all tie)."""
    with np.errstate(over="ignore"):
        bits = rows.astype(np.uint64)[:, None] ^ (columns.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))[None, :]
        bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits >> np.uint64(33)).astype(np.int64)
