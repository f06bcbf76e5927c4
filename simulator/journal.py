"""The store in memory, with a journal of the paths written since the last event, for checkers and meters; and a client that
lets other actors run before each call."""

from collections.abc import Callable, Sequence

from rota.coordination.store import Check, Node, Op
from simulator.memory_store import MemoryServer, MemoryStore

QUIET = ("", "checkpoints", "load", "runs", "parked", "refused", "controller", "epochs")  # writes there wake no agent


class JournalServer(MemoryServer):
    """A `MemoryServer` with a journal of each written or removed path, in order."""

    def __init__(self, clock: Callable[[], float], session_timeout: float) -> None:
        super().__init__(clock, session_timeout)
        self.journal: list[str] = []
        self.stirred = 0  # grows with each write that an agent or the controller may have to read

    def apply(self, session: int, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        """Apply as the server does, and add the paths to the journal after success."""
        results = super().apply(session, ops)
        self._note([op.path for op in ops if not isinstance(op, Check)])
        return results

    def expire(self, session: int) -> None:
        """Expire as the server does, and add the removed ephemeral nodes to the journal."""
        gone = sorted(self.ephemerals.get(session, ()))
        super().expire(session)
        self._note(gone)

    def _note(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.journal.append(path)
            if folder(path) not in QUIET:
                self.stirred += 1


class SteppedStore(MemoryStore):
    """A client for code that `timeline.steps` runs: `pause` is called before each call."""

    def __init__(self, server: MemoryServer, pause: Callable[[], None]) -> None:
        super().__init__(server)
        self.pause = pause

    def get_many(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        """See `Store.get_many`."""
        self.pause()
        return super().get_many(paths)

    def children(self, path: str) -> tuple[str, ...]:
        """See `Store.children`."""
        self.pause()
        return super().children(path)

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        """See `Store.multi`."""
        self.pause()
        return super().multi(ops)

    def wait_active(self, timeout: float) -> bool:
        """See `Store.wait_active`; waits in virtual time."""
        until = self.server.clock() + timeout
        while not self.active() and self.server.clock() < until:
            self.pause()
        return self.active()


def folder(path: str) -> str:
    """Return `own` of `/rota/<group>/own/<partition>`."""
    parts = path.split("/", 4)
    return parts[3] if len(parts) > 3 else ""
