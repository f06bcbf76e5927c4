"""Two requests of ZooKeeper that kazoo lacks: a multi that returns the written nodes, and a multi of reads.

kazoo's own transaction returns exceptions among the results, drops the node of a Create, and sends one read at a time.
"""

import struct
from collections.abc import Callable, Sequence

from rota.coordination.store import Check, Create, Delete, Node, Op, Set

_INT = struct.Struct("!i")
_HEADER = struct.Struct("!iBi")  # type, done, error
_STAT = struct.Struct("!qqqqiiiqiiq")  # czxid mzxid ctime mtime version cversion aversion owner size children pzxid
_DONE = _HEADER.pack(-1, 1, -1)
_CREATE2, _DELETE, _GET, _SET, _CHECK = 15, 2, 4, 5, 13
_ERROR = -1
NO_AUTH = -102
CAUSES = {-101: "missing", -103: "version", -108: "ephemeral_parent", -110: "exists", -111: "not_empty"}


class Multi:
    """Executes all of the ops or none.

    The answer holds a Node or None for each op, or an int error code for each. `acl` returns the packed ACL of a path;
    the paths begin at the chroot.
    """

    type = 14

    def __init__(self, ops: Sequence[Op], acl: Callable[[str], bytes], chroot: str = "") -> None:
        self.ops, self.acl, self.chroot = ops, acl, chroot

    def serialize(self) -> bytes:
        """The body of the request."""
        return b"".join(_HEADER.pack(*_head(op)) + self._body(op) for op in self.ops) + _DONE

    def deserialize(self, buffer: bytes, offset: int) -> list[Node | int | None]:
        """The answer."""
        answers: list[Node | int | None] = []
        for op in self.ops:
            kind, _, _ = _HEADER.unpack_from(buffer, offset)
            offset += _HEADER.size
            if kind == _ERROR:
                answers.append(_INT.unpack_from(buffer, offset)[0])
                offset += _INT.size
            elif isinstance(op, Create | Set):
                if isinstance(op, Create):
                    offset += _INT.size + _INT.unpack_from(buffer, offset)[0]  # the path
                answers.append(_node(op.data, buffer, offset))
                offset += _STAT.size
            else:
                answers.append(None)
        return answers

    def _body(self, op: Op) -> bytes:
        path = _text(self.chroot + op.path)
        if isinstance(op, Create):
            return path + _blob(op.data) + self.acl(op.path) + _INT.pack(1 if op.ephemeral else 0)
        if isinstance(op, Set):
            return path + _blob(op.data) + _INT.pack(op.version)
        return path + _INT.pack(op.version)


class MultiRead:
    """The nodes at the paths, read in this order; None where there is none, an int error code where it was refused."""

    type = 22

    def __init__(self, paths: Sequence[str], chroot: str = "") -> None:
        self.paths = [chroot + path for path in paths]

    def serialize(self) -> bytes:
        """The body of the request."""
        return b"".join(_HEADER.pack(_GET, 0, -1) + _text(path) + b"\0" for path in self.paths) + _DONE

    def deserialize(self, buffer: bytes, offset: int) -> list[Node | int | None]:
        """The answer."""
        answers: list[Node | int | None] = []
        for _ in self.paths:
            kind, _, _ = _HEADER.unpack_from(buffer, offset)
            offset += _HEADER.size
            size = _INT.unpack_from(buffer, offset)[0]  # or the error code
            offset += _INT.size
            if kind == _ERROR:
                answers.append(None if CAUSES.get(size) == "missing" else size)
                continue
            data = bytes(buffer[offset : offset + size]) if size > 0 else b""
            offset += max(size, 0)
            answers.append(_node(data, buffer, offset))
            offset += _STAT.size
        return answers


def _head(op: Op) -> tuple[int, int, int]:
    kinds: dict[type, int] = {Create: _CREATE2, Set: _SET, Check: _CHECK, Delete: _DELETE}
    return kinds[type(op)], 0, -1


def _text(text: str) -> bytes:
    return _blob(text.encode())


def _blob(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _node(data: bytes, buffer: bytes, offset: int) -> Node:
    czxid, mzxid, _, mtime, version, _, _, owner, _, _, _ = _STAT.unpack_from(buffer, offset)
    return Node(data, version, czxid, mzxid, mtime, owner)
