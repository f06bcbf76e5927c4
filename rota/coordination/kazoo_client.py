"""The parts of kazoo that it does not document, used here and in no other module.

Seen on 2.11.0; pyproject.toml allows 2.11 only, and `tests/conformance/test_client.py` plays each case below against a
real ZooKeeper. Each can be removed once kazoo offers it.

- `_connect` returns the session timeout that the server granted. kazoo subtracts a third of it and does not report it.
  Without it the deadline would be guessed, and a worker would write after others have taken over.
- `_connect_loop` ends once all hosts were tried. Only then it is known that none of them holds the session any more.
  Without it a ZooKeeper that was rebuilt leaves each worker without a session for ever.
- `_invoke` has a timeout of its own. A server that is starting may accept a connection and never read it, and kazoo
  would wait until the session is over.
- `_call` sends a request of our own: see `rota/coordination/multi.py`.
- `_state`, `_stopped` and `connection_stopped` distinguish a client that kazoo gave up for good from one that retries.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

_quiet = logging.getLogger("rota.zookeeper")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class Client(KazooClient):  # type: ignore[misc]
    """A client that is not started yet and records refusals.

    `learn` gets the session timeout that the server granted. `tried` is called once all hosts were tried. `refused` is
    when the client last began to try hosts of which none holds its session, and `since` when it was connected.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout: float,
        learn: Callable[[float], None],
        tried: Callable[[], None],
        **access: Any,
    ) -> None:
        retry = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0)
        super().__init__(hosts=hosts, timeout=session_timeout, connection_retry=retry, logger=_quiet, **access)
        self.refused = self.since = 0.0
        self.reported = 0  # the session that the guard of this process knows
        connection = self._connection
        connect, loop, invoke = connection._connect, connection._connect_loop, connection._invoke

        def note_timeout(host: str, hostip: str, port: int) -> tuple[float, float]:
            read_timeout, connect_timeout = connect(host, hostip, port)
            learn(read_timeout * 1.5 / 1000)  # kazoo's read timeout is two thirds of it
            return read_timeout, connect_timeout

        def note_round(retry: Any) -> Any:
            began = time.monotonic()
            try:
                return loop(retry)
            finally:
                self.refused = began  # all hosts were tried since then, and none of them holds the session now
                tried()

        def ask(timeout: float, request: Any, xid: int | None = None) -> Any:
            return invoke(min(timeout, session_timeout / 3), request, xid)

        connection._connect, connection._connect_loop, connection._invoke = note_timeout, note_round, ask

    @property
    def unwelcome(self) -> bool:
        """Whether a server ended the connection over credentials."""
        return bool(self._state == KeeperState.AUTH_FAILED)

    @property
    def failed(self) -> bool:
        """Whether kazoo gave the client up for good without being asked to stop."""
        return self._state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED) and self._stopped.is_set() is False

    @property
    def disconnected(self) -> bool:
        """Whether its connection ended, or has not begun."""
        return bool(self._connection.connection_stopped.is_set())

    def submit(self, request: Any) -> Any:
        """Sends a request of our own. Returns its pending answer."""
        result = self.handler.async_result()
        self._call(request, result)
        return result
