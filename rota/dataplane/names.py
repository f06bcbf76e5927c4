"""The folders of a landing folder as partition keys, and the folders that Spark reads and writes for a partition.

Laws:
1. `folder(key(name)) == name` for the name of every folder that can be a partition, and two names never share a key.
2. `key(folder(key)) == key`, and the folder lies in the landing folder itself. Keys come from ZooKeeper. A key that leads
   elsewhere (`..%2Fsecret`), or to a hidden folder, is refused.
3. `partition(split(id)) == id`. Spark unescapes what it finds in a folder's name and reads names in its machine's
   character set, and no name may be longer than 255 bytes. So an id is written as hex.
4. Of the name `link(id)` Spark's reader makes the id itself, for a whole file at once: what is hex it would have to turn
   back for each row. An id that is not of ASCII, or would be too long, has no such name.
"""

import errno
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from rota.errors import ConfigError
from rota.ids import escape, unescape

GLOB = re.compile(r"[][{}*?]")  # what Spark takes for a pattern in a path that it reads
LONGEST = 240  # characters of a name, and `_partition=` before it


def is_hidden(name: str) -> bool:
    """Return whether a landing folder ignores this name, as Spark does. Hadoop's copies end in `._COPYING_` until they
    are complete.
    """
    return name.startswith(("_", ".")) or name.endswith("._COPYING_")


def key(folder: str) -> str:
    """Return the key of a folder."""
    return escape(folder)


def folder(of: str) -> str:
    """Return the folder of a key. Raises OSError if no folder can have it; only that partition waits then."""
    try:
        name = unescape(of)
    except ConfigError:
        name = ""
    if not name or is_hidden(name) or "/" in name or "\0" in name:
        raise OSError(
            errno.EINVAL, "no folder has this key; rota forget --pipeline drops it, what landed is found again", of
        )
    return name


def find_folders(keys: Mapping[str, str]) -> tuple[dict[str, str], dict[str, OSError]]:
    """Return folder -> partition for these partitions, and why some have no folder."""
    found: dict[str, str] = {}
    nowhere: dict[str, OSError] = {}
    for partition, key in keys.items():
        try:
            found[folder(key)] = partition
        except OSError as error:
            nowhere[partition] = error
    return found, nowhere


def split(partition: str) -> str:
    """The name of a folder that holds one partition's files: what Spark's function `unhex` reads."""
    return partition.encode().hex().upper()


def link(partition: str) -> str | None:
    """The name of a folder of which Spark makes the partition; None where there is none."""
    name = quote(partition, safe="")
    return name if partition.isascii() and len(name) <= LONGEST else None


def partition(split: str) -> str:
    """Return the partition of a folder that `split` named; else the name itself."""
    try:
        return bytes.fromhex(split).decode()
    except ValueError:
        return split


def escape_path(folder: Path) -> str:
    """Return the folder's path for Spark's reader, with pattern characters escaped."""
    return GLOB.sub(r"\\\g<0>", str(folder))
