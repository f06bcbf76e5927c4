"""Numbers that depend on ids alone. They break ties between equally good answers."""

from collections.abc import Iterable
from zlib import crc32

import numpy as np

from rota.core.values import Ints


def hash_ids(names: Iterable[str]) -> Ints:
    """Return a number for each id that depends on the id alone."""
    return np.array(list(map(crc32, map(str.encode, names))), np.int64)


def hash_pairs(rows: Ints, columns: Ints) -> Ints:
    """Return a number for each pair of a row and a column. A sum of two numbers would make all swaps tie."""
    with np.errstate(over="ignore"):
        bits = rows.astype(np.uint64)[:, None] ^ (columns.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))[None, :]
        bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits >> np.uint64(33)).astype(np.int64)
