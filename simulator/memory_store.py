"""A ZooKeeper in memory, exact about versions, zxids, sessions, ephemerals, multi and watches; for tests and simulation.

Law: the answer of a multi, and the state after it, equal those of the real server (a test compares them on thousands of
random multis). Faults are injected per store: `lose_reply`, `lose_request`, `cut`, `disconnect`, `reconnect`.
`MemoryServer.expire` ends a session without its client.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rota.coordination.store import Check, Create, Delete, Node, Op, Store, checked, checked_path, conflict_line
from rota.errors import Conflict, Unavailable, Unknown

FIRST_SESSION = 0x1000_0000_0000_0000


@dataclass(slots=True)
class Entry:
    """A node and the names of its children; `ordered` caches the sorted names, None: they changed since."""

    node: Node
    children: set[str] = field(default_factory=set)
    ordered: tuple[str, ...] | None = ()


class Refused(Exception):
    """One operation cannot be applied; the text is the cause."""


class MemoryServer:
    """The server: `clock` returns its seconds. `session_timeout` only sets the clients' own deadline; a session ends only by
    `expire`."""

    def __init__(self, clock: Callable[[], float] = time.time, session_timeout: float = 10.0) -> None:
        self.clock, self.session_timeout = clock, session_timeout
        self.lock = threading.RLock()
        self.zxid = 0
        self.entries: dict[str, Entry] = {"/": Entry(Node(b"", 0, 0, 0, 0))}
        self.ephemerals: defaultdict[int, set[str]] = defaultdict(set)
        self.sessions: set[int] = set()
        self.next_session = FIRST_SESSION
        self.watches: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)

    def connect(self) -> "MemoryStore":
        """Return a client with a new session."""
        return MemoryStore(self)

    def open_session(self) -> int:
        """Return a new session id; ids are never used twice."""
        with self.lock:
            self.next_session += 1
            self.sessions.add(self.next_session)
            return self.next_session

    def expire(self, session: int) -> None:
        """End the session and remove its ephemeral nodes. Its client gets an error at its next call."""
        touched: set[str] = set()
        with self.lock:
            if session in self.sessions:
                self.sessions.discard(session)
                self.zxid += 1
                for path in sorted(self.ephemerals.pop(session, ())):
                    self._remove(path, touched)
        self._fire(touched)

    def node(self, path: str) -> Node | None:
        """Return the current node; None if there is none."""
        with self.lock:
            entry = self.entries.get(path)
            return entry.node if entry is not None else None

    def children(self, path: str) -> tuple[str, ...]:
        """Return the sorted names of the children."""
        with self.lock:
            entry = self.entries.get(path)
            if entry is None:
                return ()
            if entry.ordered is None:
                entry.ordered = tuple(sorted(entry.children))
            return entry.ordered

    def apply(self, session: int, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        """Apply all of `ops` under one zxid. Raises Conflict, which names the first operation that cannot be applied."""
        touched: set[str] = set()
        undo: list[Callable[[], None]] = []
        results: list[Node | None] = []
        with self.lock:
            self.zxid += 1
            for index, op in enumerate(ops):
                try:
                    results.append(self._apply(session, op, undo, touched))
                except Refused as refused:
                    for step in reversed(undo):
                        step()
                    cause = str(refused)
                    raise Conflict(conflict_line(op, cause), path=op.path, index=index, cause=cause) from None
        self._fire(touched)
        return tuple(results)

    def _apply(self, session: int, op: Op, undo: list[Callable[[], None]], touched: set[str]) -> Node | None:
        if isinstance(op, Create):
            return self._create(session, op, undo, touched)
        entry = self.entries.get(op.path)
        if entry is None:
            raise Refused("missing")
        before = entry.node
        if op.version not in (-1, before.version):
            raise Refused("version")
        if isinstance(op, Check):
            return None
        if isinstance(op, Delete):
            if entry.children:
                raise Refused("not_empty")
            self._remove(op.path, touched)
            undo.append(lambda: self._put(op.path, entry))
            return None
        after = Node(op.data, before.version + 1, before.czxid, self.zxid, self._mtime(), before.owner)
        entry.node = after
        touched.add(op.path)

        def restore() -> None:
            entry.node = before

        undo.append(restore)
        return after

    def _create(self, session: int, op: Create, undo: list[Callable[[], None]], touched: set[str]) -> Node:
        parent = self.entries.get(op.path.rpartition("/")[0] or "/")
        if parent is None:
            raise Refused("missing")
        if op.path in self.entries:
            raise Refused("exists")
        if parent.node.owner:
            raise Refused("ephemeral_parent")
        node = Node(op.data, 0, self.zxid, self.zxid, self._mtime(), session if op.ephemeral else 0)
        self._put(op.path, Entry(node))
        touched |= {op.path, op.path.rpartition("/")[0] or "/"}
        undo.append(lambda: self._remove(op.path, set()))
        return node

    def _put(self, path: str, entry: Entry) -> None:
        parent, _, name = path.rpartition("/")
        self.entries[path] = entry
        above = self.entries[parent or "/"]
        above.children.add(name)
        above.ordered = None
        if entry.node.owner:
            self.ephemerals[entry.node.owner].add(path)

    def _remove(self, path: str, touched: set[str]) -> None:
        parent, _, name = path.rpartition("/")
        entry = self.entries.pop(path)
        above = self.entries[parent or "/"]
        above.children.discard(name)
        above.ordered = None
        self.ephemerals[entry.node.owner].discard(path)
        touched |= {path, parent or "/"}

    def _mtime(self) -> int:
        return int(self.clock() * 1000)

    def _fire(self, touched: set[str]) -> None:
        if not self.watches:
            return
        with self.lock:
            callbacks = [c for path in sorted(touched) for c in self.watches.pop(path, ())]
        for callback in callbacks:
            callback()


class MemoryStore(Store):
    """A client of `MemoryServer`. After an expiry the first call raises and the next one has a new session."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self._session = server.open_session()
        self._lost: list[str] = []
        self._connected = True
        self._cut_at: float | None = None
        self._closed = False

    @property
    def session(self) -> int:
        """Return the id of the current session."""
        return self._session

    def get_many(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        """Return the nodes, in this order."""
        self._reach()
        node = self.server.node
        return tuple([node(checked_path(path)) for path in paths])

    def children(self, path: str) -> tuple[str, ...]:
        """Return the sorted names of the children."""
        self._reach()
        return self.server.children(checked_path(path))

    def stamp(self) -> tuple[int, int]:
        """Return the session, and the zxid of the server's last change."""
        self._reach()
        return self._session, self.server.zxid

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        """Apply all of `ops` or none. Injected faults happen here."""
        checked(ops)
        if not self.active():
            raise Unavailable("This session cannot be proven to be alive: nothing was sent. Wait until it is connected")
        if self._cut_at is not None:
            raise Unknown("The request went into a dead link. Read back before deciding")
        self._reach()
        fault = self._lost.pop(0) if self._lost else ""
        if fault == "request":
            raise Unknown("The connection broke. Read back before deciding")
        answer = self.server.apply(self._session, ops)
        if fault == "reply":
            raise Unknown("The connection broke. Read back before deciding")
        return answer

    def sync(self) -> None:
        """Only check the connection: reads are always up to date."""
        self._reach()

    def active(self) -> bool:
        """Return whether the client is connected, or less than 0.6 session timeouts have passed since a silent cut."""
        if not self._connected or self._closed:
            return False
        return self._cut_at is None or self.server.clock() - self._cut_at < 0.6 * self.server.session_timeout

    def wait_active(self, timeout: float) -> bool:  # noqa: ARG002
        """Return `active()` at once: waiting changes nothing."""
        return self.active()

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        """Call `callback` once, in the thread that changes the node or its list of children."""
        self._reach()
        fired = threading.Event()

        def once() -> None:
            if not fired.is_set():
                fired.set()
                callback()

        with self.server.lock:
            self.server.watches[checked_path(path)].append(once)

    def renew(self) -> int:
        """End the session and open another."""
        self._reach()
        self.server.expire(self._session)
        self._session = self.server.open_session()
        return self._session

    def close(self) -> None:
        """End the session."""
        if not self._closed:
            self._closed = True
            self.server.expire(self._session)

    # --- faults

    def lose_reply(self) -> None:
        """Apply the next multi, and raise Unknown."""
        self._lost.append("reply")

    def lose_request(self) -> None:
        """Do not apply the next multi, and raise Unknown."""
        self._lost.append("request")

    def cut(self) -> None:
        """Cut the connection silently: the client notices it only at its own deadline."""
        self._cut_at = self.server.clock()

    def disconnect(self) -> None:
        """Disconnect the client, which notices it and sends nothing."""
        self._connected = False

    def reconnect(self) -> None:
        """Restore the connection, and the session unless it expired."""
        self._connected, self._cut_at = True, None

    def _reach(self) -> None:
        if self._closed:
            raise Unavailable("This store is closed. Connect again")
        if not self._connected or self._cut_at is not None:
            raise Unavailable("No connection to ZooKeeper: nothing was sent. Wait until it is connected")
        if self._session not in self.server.sessions:
            self._session = self.server.open_session()
            raise Unavailable("The session expired; a new one was made. Read everything again, then continue")
