"""Chooses the queue of a key.

Law: the queue depends only on the key and the number of queues, in every process and every version of Python.

If n queues become n + 1, `modulo` moves all keys but 1 / (n + 1). `consistent` moves 1 / (n + 1) of them, all to the new
queue (jump consistent hash of Lamping and Veach).
"""

from collections.abc import Callable, Mapping
from hashlib import blake2b


def take_modulo(key: str, queues: int) -> int:
    """Return the number of the key's queue among `queues`."""
    return _hash(key) % queues


def jump(key: str, queues: int) -> int:
    """Return the number of the key's queue, such that few keys move when `queues` grows."""
    seed, at, after = _hash(key), -1, 0
    while after < queues:
        at = after
        seed = (seed * 2862933555777941757 + 1) % (1 << 64)
        after = int((at + 1) * ((1 << 31) / ((seed >> 33) + 1)))
    return at


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")


HASHES: Mapping[str, Callable[[str, int], int]] = {"modulo": take_modulo, "consistent": jump}
