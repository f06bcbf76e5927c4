"""A folder's name as a partition key, and back.

Law: `folder(key(name)) == name` for every name, and two names never share a key. What an id may not hold becomes `_` and
two hex digits a byte (`carrier=AA` -> `carrier_3dAA`); names of letters, digits, `.`, `-` and `_` mostly stay as they are.
A key starts with a letter or digit, as every id does: one that would not gets `z_00` in front, which no folder can mean.
"""

import re

ESCAPED = re.compile(rb"_([0-9a-f]{2})")
FRONT = "z_00"
FOREIGN = re.compile(rb"_(?=[0-9a-f]{2})|[^A-Za-z0-9._-]")


def key(folder: str) -> str:
    """The key of a folder."""
    key = FOREIGN.sub(lambda m: b"_%02x" % m[0][0], folder.encode("utf-8", "surrogateescape")).decode()
    return key if key[:1].isalnum() else FRONT + key


def folder(key: str) -> str:
    """The folder of a key."""
    return ESCAPED.sub(lambda m: bytes([int(m[1], 16)]), key.removeprefix(FRONT).encode()).decode(
        "utf-8", "surrogateescape"
    )
