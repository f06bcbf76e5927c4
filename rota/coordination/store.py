"""The contract of a store of znodes. The real ZooKeeper and the one in memory pass the same conformance suite.

Laws:
1. `multi` is all or nothing and totally ordered: every write that happened has one zxid, and zxids only grow.
2. It raises `Conflict` (nothing was written; the failed operation is named), `Unavailable` (nothing was sent) or
   `Unknown` (the reply was lost: the write may or may not have happened). It is never repeated automatically.
3. Sizes, paths and versions are checked before anything is sent; a bad one raises ConfigError.
4. An ephemeral node lives as long as the session that created it. `session` is the present one; it changes after an
   expiry.
5. No write is sent while `active()` is false: the session cannot be proven to be alive.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, Self

from rota.errors import ConfigError, Conflict, Unavailable, Unknown
from rota.ids import is_partition

MAX_DATA = 700_000  # bytes of one node: two of them would not fit into one request of ZooKeeper's 1 MB
MAX_OPS = 500
MAX_REQUEST = 900_000  # bytes of one multi, paths included
MAX_PATH = 1_000
RECONNECTING = 30.0  # seconds that a command waits for the connection before it reads
CLOCK = "/rota/clock"  # written to learn the server's time
PATH = re.compile(r"(/[A-Za-z0-9._@=-]+)+")


@dataclass(frozen=True, slots=True)
class Node:
    """A znode as read, or as just written.

    `mzxid` is the zxid of its last write, `mtime` the server's milliseconds then, `owner` the session of an ephemeral
    node or 0.
    """

    data: bytes
    version: int
    czxid: int
    mzxid: int
    mtime: int
    owner: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node whose parent exists. It starts at version 0."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace the data of a node that is at `version` (-1: any)."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Require that the node exists, at `version` (-1: any)."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children that is at `version` (-1: any)."""

    path: str
    version: int = -1


Op = Create | Set | Check | Delete


class Store(Protocol):
    """A connection with one session; see the laws of the module."""

    trouble: Exception | None = None  # what keeps this process from maintaining its session
    lost_why: str = "the session is lost"  # what is known of how the session before the present one ended
    asked: int = 0  # how often this was called: shows that the user of the store is alive

    @property
    def session(self) -> int:
        """The id of the present session."""
        ...

    def get(self, path: str) -> Node | None:
        """The node, or None if there is none. Raises Unavailable."""
        return self.get_many((path,))[0]

    def get_many(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        """Each node, read in this order over one pipelined connection. Raises Unavailable."""
        ...

    def children(self, path: str) -> tuple[str, ...]:
        """The names of the children, sorted as bytes; () also if the node does not exist. Raises Unavailable."""
        ...

    def stamp(self) -> tuple[int, int]:
        """A value that changes whenever any client changes anything in ZooKeeper.

        Values read after one stamp are still current if the next stamp is equal. One request. Raises Unavailable.
        """
        ...

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        """All of `ops` or none; the written node for each Create and Set, None for each Check and Delete."""
        ...

    def sync(self) -> None:
        """After it, reads see every write that was acknowledged to any client before. Raises Unavailable."""
        ...

    def active(self) -> bool:
        """Connected, and within the deadline: the session is provably alive at this moment."""
        ...

    def wait_active(self, timeout: float) -> bool:
        """Waits until `active()`, at most `timeout` seconds. Returns whether it is active."""
        ...

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        """Calls back once, from another thread, when the node or its list of children changes, or at any time before."""
        ...

    def renew(self) -> int:
        """Ends the session, so that its ephemeral nodes are deleted, and creates another. Returns its id. Raises
        Unavailable.
        """
        ...

    def close(self) -> None:
        """Ends the session; its ephemeral nodes are deleted at once. Calling it twice is harmless."""
        ...

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> Node:
        """One Create."""
        return written(self.multi([Create(path, data, ephemeral)])[0])

    def set(self, path: str, data: bytes, version: int) -> Node:
        """One Set."""
        return written(self.multi([Set(path, data, version)])[0])

    def delete(self, path: str, version: int = -1) -> None:
        """One Delete."""
        self.multi([Delete(path, version)])

    def ensure(self, path: str) -> None:
        """Creates the persistent node and its parents if they do not exist.

        It creates none that this process could not read: with wrong identities in ROTA_ZOOKEEPER_ACL this could not be
        undone.
        """
        names = path.strip("/").split("/")
        for depth in range(1, len(names) + 1):
            here = "/" + "/".join(names[:depth])
            if self.get(here) is None:
                try:
                    self.multi([Create(here), Check(here)])
                except Conflict as conflict:
                    if conflict.cause != "exists":
                        raise

    def now(self) -> float:
        """The server's clock in seconds, from a node just written: the only clock that processes share."""
        try:
            return self.set(CLOCK, b"", -1).mtime / 1000
        except Conflict:
            self.ensure(CLOCK)
            return self.set(CLOCK, b"", -1).mtime / 1000

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def settle(store: Store, timeout: float = RECONNECTING) -> None:
    """After an Unknown: waits until the store is connected again and its reads are up to date. Raises Unknown if it
    cannot: what happened stays open."""
    store.wait_active(timeout)
    try:
        store.sync()
    except Unavailable as error:
        raise Unknown(f"The reply was lost, and it cannot be read back now: {error}") from error


def written(node: Node | None) -> Node:
    """The node of a Create or Set."""
    if node is None:
        raise TypeError("this op writes no node")
    return node


def checked_path(path: str) -> str:
    """`path` if it may be sent; else ConfigError. ZooKeeper would normalise or reject others."""
    if isinstance(path, str) and _may_be_sent(path):
        return path
    raise ConfigError(
        f"Bad znode path {str(path)[:100]!r}: use /names of A-Z a-z 0-9 . _ @ = - and a partition's id at its end, "
        f"{MAX_PATH} at most"
    )


@lru_cache(maxsize=1 << 15)  # the same paths are asked for again and again
def _may_be_sent(path: str) -> bool:
    if len(path) > MAX_PATH:
        return False
    folder, _, name = path.rpartition("/")
    known = PATH.fullmatch(folder if is_partition(name) else path)
    return known is not None and ("/." not in path or not {".", ".."} & set(path.split("/")))


def checked(ops: Sequence[Op]) -> Sequence[Op]:
    """`ops` if they may be sent in one request; else ConfigError with the numbers."""
    if not 1 <= len(ops) <= MAX_OPS:
        raise ConfigError(f"A multi of {len(ops)} operations: send 1 to {MAX_OPS} at a time")
    total = 0
    for op in ops:
        checked_path(op.path)
        total += len(op.path.encode()) + 60
        if isinstance(op, Create | Set):
            if not isinstance(op.data, bytes):
                raise ConfigError(f"Data for {op.path} is {type(op.data).__name__}, not bytes. Encode the record first")
            if len(op.data) > MAX_DATA:
                raise ConfigError(f"{len(op.data)} bytes for {op.path} are above {MAX_DATA}. Make the record smaller")
            total += len(op.data)
        if not isinstance(op, Create) and (type(op.version) is not int or not -1 <= op.version < 2**31):
            raise ConfigError(f"Bad version {op.version!r} for {op.path}: give the dataVersion read, or -1")
    if total > MAX_REQUEST:
        raise ConfigError(f"A multi of {total} bytes is above {MAX_REQUEST}. Send it in parts")
    return ops


CAUSES = {
    "version": "it was changed since it was read",
    "missing": "there is no such node, or not its parent",
    "exists": "it is there already",
    "not_empty": "it has children",
    "ephemeral_parent": "its parent is ephemeral",
}


def conflict_line(op: Op, cause: str) -> str:
    """The one line of a Conflict."""
    kind = type(op).__name__.lower()
    version = "" if isinstance(op, Create) else f" at version {op.version}"
    return f"{kind} {op.path}{version} lost: {CAUSES.get(cause, cause)}. Nothing was written; read again and decide"
