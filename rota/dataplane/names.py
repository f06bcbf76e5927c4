"""The folders of a landing folder as partition keys, and the folders that Spark reads and writes for a partition.

Laws:
1. `folder(key(name)) == name` for the name of every folder that can be a partition, and two names never share a key.
2. `key(folder(key)) == key`, and the folder lies in the landing folder itself. Keys come from ZooKeeper: one that would lead
   elsewhere (`..%2Fsecret`), or to what hides behind `_` or `.`, is refused, whoever wrote it.
3. `partition(split(id)) == id`. Spark unescapes what it finds in a folder's name and reads names in its machine's
   character set, and no name may be longer than 255 bytes: so an id stands there as hex.
"""

import errno

from rota.errors import ConfigError
from rota.ids import escape, unescape

HIDDEN = ("_", ".")  # what a landing folder leaves out begins so


def key(folder: str) -> str:
    """The key of a folder."""
    return escape(folder)


def folder(of: str) -> str:
    """The folder of a key. Raises OSError where no folder can have it: its partition waits, as one that cannot be looked
    at does, and no other."""
    try:
        name = unescape(of)
    except ConfigError:
        name = ""
    if not name or name.startswith(HIDDEN) or "/" in name or "\0" in name:
        raise OSError(
            errno.EINVAL, "no folder has this key; rota forget --pipeline drops it, what landed is found again", of
        )
    return name


def split(partition: str) -> str:
    """The name of a folder that holds one partition's files: what Spark's function `unhex` reads."""
    return partition.encode().hex().upper()


def partition(split: str) -> str:
    """The partition of such a folder; the name itself where it is none."""
    try:
        return bytes.fromhex(split).decode()
    except ValueError:
        return split
