"""The folders of a landing folder as partition keys, and the folders that Spark writes for a partition.

Laws:
1. `folder(key(name)) == name` for the name of every folder that can be a partition, and two names never share a key.
2. `key(folder(key)) == key`, and the folder lies in the landing folder itself. Keys come from ZooKeeper. A key that leads
   elsewhere (`..%2Fsecret`), or to a hidden folder, is refused.
3. `partition(split(id)) == id`. Readers of tables unescape what they find in a folder's name, and no name may be longer
   than 255 bytes. So an id is written as hex.
"""

import errno
import re
from collections.abc import Mapping
from pathlib import Path

from rota.errors import ConfigError
from rota.ids import escape, unescape

PATTERN = "[]{}*?\\"
GLOB = re.compile(rf"[{re.escape(PATTERN)}]")  # what Hadoop reads as a pattern in a path


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
    """The name of a folder that holds one partition's files."""
    return partition.encode().hex().upper()


def partition(split: str) -> str:
    """Return the partition of a folder that `split` named; else the name itself."""
    try:
        return bytes.fromhex(split).decode()
    except ValueError:
        return split


def escape_path(path: Path | str) -> str:
    """Return the path for Spark's reader, with pattern characters escaped."""
    return GLOB.sub(r"\\\g<0>", str(path))
