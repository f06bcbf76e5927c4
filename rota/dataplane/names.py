"""A folder's name as a partition key, and back.

Laws:
1. `folder(key(name)) == name` for the name of every folder that can be a partition, and two names never share a key. What
   an id may not hold becomes `_` and two hex digits a byte (`carrier=AA` -> `carrier_3dAA`); names of letters, digits, `.`,
   `-` and `_` mostly stay as they are. A key starts with a letter or digit, as every id does: one that would not gets
   `z_00` in front, which no folder can mean.
2. `key(folder(key)) == key`, and the folder lies in the landing folder itself. Keys come from ZooKeeper: one that would lead
   elsewhere (`z_00_2e_2e_2fsecret`), or to what hides behind `_` or `.`, is refused, whoever wrote it.
"""

import errno
import re

ESCAPED = re.compile(rb"_([0-9a-f]{2})")
FRONT = "z_00"
HIDDEN = ("_", ".")  # what a landing folder leaves out begins so
FOREIGN = re.compile(rb"_(?=[0-9a-f]{2})|[^A-Za-z0-9._-]")


def key(folder: str) -> str:
    """The key of a folder."""
    named = FOREIGN.sub(lambda m: b"_%02x" % m[0][0], folder.encode("utf-8", "surrogateescape")).decode()
    return named if named[:1].isalnum() else FRONT + named


def folder(of: str) -> str:
    """The folder of a key. Raises OSError where no folder can have it: its partition waits, as one that cannot be looked
    at does, and no other."""
    raw = ESCAPED.sub(lambda m: bytes([int(m[1], 16)]), of.removeprefix(FRONT).encode("utf-8", "surrogateescape"))
    name = raw.decode("utf-8", "surrogateescape")
    if not name or name.startswith(HIDDEN) or "/" in name or "\0" in name or key(name) != of:
        raise OSError(
            errno.EINVAL, "no folder has this key; rota forget --pipeline drops it, what landed is found again", of
        )
    return name
