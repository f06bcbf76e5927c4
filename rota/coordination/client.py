"""The only wrapper of kazoo: every call has a timeout, and every lost reply raises Unknown.

Laws, in addition to those of `store`:
1. A write is sent only if kazoo is CONNECTED *and* the deadline has not passed: the send time of the last acknowledged
   request + 0.6 of the negotiated session timeout, on the monotonic clock. kazoo alone does not notice a silent network
   cut while requests are sent, and a process that was paused notices nothing until it looks.
2. A read waits for the connection and is sent again, within the call's timeout. A write is never sent again.
3. A client that was inherited over a fork is refused at once. A client that kazoo gave up for good is replaced.
4. If ZooKeeper gives new sessions but has not accepted this session for its whole timeout, the store starts a new one.
   A server that was rebuilt, restored or lost its last writes never accepts a client with a later zxid. A ZooKeeper
   that gives no sessions at all (no leader, no server) ends none.
5. A missing right raises Forbidden at once: waiting does not help.
6. A session guard, if there is one, knows each session of this store, until the session was ended in order.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import ConnectionClosedError, KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from rota.coordination.access import ANYONE, Access
from rota.coordination.guarded import SessionLink
from rota.coordination.kazoo_client import Client
from rota.coordination.multi import CAUSES, NO_AUTH, Multi, MultiRead
from rota.coordination.store import MAX_OPS, Node, Op, Store, checked, checked_path, conflict_line
from rota.errors import Conflict, Forbidden, Unavailable, Unknown
from rota.machine import start_lasting
from rota.settings import Settings, split_hosts

FRACTION = 0.6  # fraction of the session timeout: the server cannot have expired the session before this
STOPPING = 3.0  # seconds that a client has to end its session
REFUSED = 1.0  # seconds after which a server that refused our password is tried again, as for any other reason
OLDER = (
    "ZooKeeper gives new sessions and does not take this one back: it was rebuilt, restored from an older copy, or lost "
    "its last writes. Where a table refuses it now: rota adopt"
)


def connect(
    hosts: str,
    session_timeout: float = 10.0,
    *,
    connect_timeout: float = 5.0,
    call_timeout: float = 10.0,
    access: Access = ANYONE,
    guard: SessionLink | None = None,
) -> "ZooKeeperStore":
    """A connected store. Raises Unavailable with the reason and the next step after `connect_timeout` seconds."""
    store = ZooKeeperStore(hosts, session_timeout, call_timeout=call_timeout, access=access, guard=guard)
    if store.wait_active(connect_timeout):
        return store
    store.close()
    why, mend = access.why_not(hosts, store.unwelcome)
    raise Unavailable(f"No ZooKeeper at {hosts} after {connect_timeout:g} s ({why}). {mend}")


def opened(settings: Settings, hosts: str | None = None, guard: SessionLink | None = None) -> "ZooKeeperStore":
    """A store connected by the environment's settings and credentials. Raises ConfigError, Unavailable."""
    timeout = settings.session_timeout.total_seconds()
    return connect(hosts or settings.zookeeper, timeout, access=Access.of(settings), guard=guard)


class ZooKeeperStore(Store):
    """One session with a real ZooKeeper; see the laws of the module. Thread-safe within one process."""

    def __init__(
        self,
        hosts: str,
        session_timeout: float = 10.0,
        *,
        call_timeout: float = 10.0,
        access: Access = ANYONE,
        guard: SessionLink | None = None,
    ) -> None:
        places, self.chroot = split_hosts(hosts)
        self.hosts = ",".join(places) + self.chroot
        self.session_timeout, self.call_timeout = session_timeout, call_timeout
        self.access, self.guard = access, guard
        self.unwelcome = False  # whether a server ended the connection over our credentials
        self.negotiated = session_timeout
        self._pid, self._session = os.getpid(), 0
        self.proven_until, self._closed = 0.0, False
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self.client: Any = None
        self.fresh: Any = None  # a second client, while the first is not accepted: does it get a session?
        self._heard = time.monotonic()  # when the present client last was, or ceased to be, connected
        self.rebuild(None)
        start_lasting("rota-zookeeper-proof", self._prove, partial(setattr, self, "trouble"))

    # --- the contract

    @property
    def session(self) -> int:
        """The id of the present session; 0 before the first."""
        return self._session

    def get_many(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        """Each node, read in this order, 500 to a request."""
        for path in paths:
            checked_path(path)
        nodes: list[Node | None] = []
        for start in range(0, len(paths), MAX_OPS):
            nodes += self._read(partial(Client.submit, request=MultiRead(paths[start : start + MAX_OPS], self.chroot)))
        return tuple(self._readable(n, p) for n, p in zip(nodes, paths, strict=True))

    def children(self, path: str) -> tuple[str, ...]:
        """The sorted names of the children."""
        checked_path(path)
        return tuple(sorted(self.ask(lambda c: c.get_children_async(path), "r", path, "list") or ()))

    def stamp(self) -> tuple[int, int]:
        """The session, and the zxid of the server's last change, which each reply contains."""
        self._read(lambda c: c.exists_async("/"))
        return self._session, self.client.last_zxid

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        """All of `ops` or none; never sent twice."""
        checked(ops)
        self._own()
        self.asked += 1
        if not self.active():
            raise Unavailable("This session cannot be proven to be alive: nothing was sent. Wait until it is connected")
        request = partial(Client.submit, request=Multi(ops, self.access.packed, self.chroot))
        answers = self._call(self.client, request, self.call_timeout)
        codes = [(i, a) for i, a in enumerate(answers) if isinstance(a, int)]
        if not codes:
            return tuple(a for a in answers if not isinstance(a, int))
        index, code = next(((i, c) for i, c in codes if c not in (0, -2)), codes[0])  # 0, -2: rolled back with it
        if code == NO_AUTH:
            raise Forbidden(self.access.refused(ops[index]))
        if code not in CAUSES:
            raise Unavailable(f"ZooKeeper refused {ops[index].path} with code {code}. Check its ACLs and quotas")
        cause = CAUSES[code]
        raise Conflict(conflict_line(ops[index], cause), path=ops[index].path, index=index, cause=cause)

    def ensure(self, path: str) -> None:
        """Creates the node and its parents, and the chroot, if they do not exist."""
        if self.chroot and self.ask(lambda c: c.exists_async("/"), "r", "/", "see") is None:
            whole = self.hosts.removesuffix(self.chroot)
            with connect(whole, connect_timeout=self.call_timeout, access=self.access) as above:
                above.ensure(self.chroot)
        super().ensure(path)

    def sync(self) -> None:
        """After it, reads see every write that was acknowledged to any client before."""
        self._read(lambda c: c.sync_async("/"))

    def active(self) -> bool:
        """CONNECTED, in the process that connected, and within the deadline."""
        if self._closed or self._pid != os.getpid() or self.client.state != KazooState.CONNECTED:
            return False
        return time.monotonic() < self.proven_until

    def wait_active(self, timeout: float) -> bool:
        """Waits until `active()`, at most `timeout` seconds."""
        end = time.monotonic() + timeout
        with self._changed:
            while not self.active():
                self.asked += 1
                left = end - time.monotonic()
                if left <= 0 or self._closed:
                    return False
                self._changed.wait(min(left, 0.2))
        return True

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        """Calls back once, from kazoo's thread: it must not block."""
        checked_path(path)
        fired = threading.Event()

        def once(_: object) -> None:
            if not fired.is_set():
                fired.set()
                callback()

        self.ask(lambda c: c.exists_async(path, watch=once), "r", path, "watch")
        self.ask(lambda c: c.get_children_async(path, watch=once), "r", path, "watch")

    def ask(self, submit: Callable[[Any], Any], letter: str, path: str, verb: str) -> Any:
        """Sends a request that is safe to repeat and needs this right. Returns None if the node does not exist.

        Raises Forbidden, Unavailable.
        """
        try:
            return self._read(submit)
        except NoNodeError:
            return None
        except NoAuthError:
            raise Forbidden(self.access.lacking(letter, path, verb, path)) from None

    def renew(self) -> int:
        """Ends the session and creates another; its ephemeral nodes are deleted. Raises Unavailable."""
        self._own()
        old, before = self.client, self._session
        self.rebuild(old)
        self._stop(old)
        if not self.wait_active(self.call_timeout) or self._session == before:
            raise Unavailable("No new session in time. Wait until ZooKeeper answers")
        return self._session

    def close(self) -> None:
        """Ends the session. In a forked child it does nothing: the session belongs to the parent."""
        if self._closed or self._pid != os.getpid():
            return
        with self._changed:
            self._closed = True
        self._wake.set()
        self._stop(self.client)

    def _readable(self, node: Node | int | None, path: str) -> Node | None:
        if node == NO_AUTH:
            raise Forbidden(self.access.lacking("r", path, "read", path))
        if isinstance(node, int):
            raise Unavailable(f"ZooKeeper refused to read {path} with code {node}. Look into its log")
        return node

    # --- the client and its session

    def build_client(self) -> Any:
        """A client of kazoo that is not started yet and records refusals."""
        client = Client(
            self.hosts,
            self.session_timeout,
            lambda seconds: setattr(self, "negotiated", seconds),
            self._wake.set,
            **self.access.of_client(),
        )
        client.add_listener(lambda state: self._listen(client, state))
        return client

    def _listen(self, client: Any, state: str) -> None:
        """Called by kazoo's connection thread: records the state, never blocks."""
        self.unwelcome |= client.unwelcome
        if state == KazooState.CONNECTED:
            client.since = time.monotonic()
            self._report(client)
        if client is self.client:
            self.proven_until, self._heard = 0.0, time.monotonic()
            if state == KazooState.CONNECTED and self._session != client.client_id[0]:
                self._session, self.lost_why = client.client_id[0], Store.lost_why
        self._wake.set()

    def _report(self, client: Any) -> None:
        """Reports a new session of the client to the guard; the client's former one has expired."""
        session, password = client.client_id
        if self.guard is None or client.reported == session:
            return
        if client.reported:
            self.guard.report_ended(client.reported)
        client.reported = session
        self.guard.report_opened(session, password, self.hosts, self.negotiated, self.access.of_client())

    def _stop(self, client: Any, patience: float = STOPPING) -> None:
        """Ends a client and its session. If its connection is stuck, kazoo waits for long: that goes on without the
        caller, and the session expires.
        """

        def stop() -> None:
            was_connected = client.state == KazooState.CONNECTED
            with contextlib.suppress(Exception):
                client.stop()
                if was_connected and self.guard is not None:
                    self.guard.report_ended(client.reported)
                client.close()

        stopping = threading.Thread(target=stop, name="rota-zookeeper-stop", daemon=True)
        stopping.start()
        stopping.join(patience)

    def rebuild(self, old: Any) -> None:
        """Replaces the client `old` by another with a session of its own, and registers it before it can call back.

        A second caller, or one after the end, creates none: no code would end that session.
        """
        with self._changed:
            if self.client is not old or self._closed:
                return
            self.proven_until = 0.0
            self.client, self._heard = self.build_client(), time.monotonic()
            try:
                self.client.start_async()
            except BaseException:  # half of its threads: the next round tries again, and the old client reports it
                self.client = old
                raise
        self._wake.set()

    def _prove(self) -> bool:
        """One round: extends the deadline while requests are acknowledged, and replaces a dead or rejected client.

        Returns whether there is another round.
        """
        client = self.client
        if client.failed:
            settled = time.monotonic() - self._heard > REFUSED
            if settled and client.disconnected:
                self.rebuild(client)  # a stopped client would not be supervised any more
                self._stop(client)
        elif client.state == KazooState.CONNECTED:
            self._heard, self.trouble = time.monotonic(), None
            self._forget_fresh()
            with contextlib.suppress(Unavailable, Unknown, KazooException):
                self._call(client, lambda c: c.exists_async("/"), self.negotiated * FRACTION)
        elif self._session and time.monotonic() - self._heard > self.negotiated:
            self.begin_anew(client)
        self._wake.wait(self.negotiated * 0.15)
        self._wake.clear()
        if self._closed:
            self._forget_fresh()
        return not self._closed

    def begin_anew(self, client: Any) -> None:
        """Law 4. The second client takes over once it has a session and all hosts refused the first one since."""
        fresh = self.fresh
        begun = fresh is not None and fresh.refused  # before it begins, its connection reports that it stopped
        if fresh is None or (begun and fresh.disconnected):
            self._forget_fresh()
            fresh = self.build_client()
            fresh.start_async()
            self.fresh = fresh
        elif fresh.state == KazooState.CONNECTED and client.refused > fresh.since:
            with self._changed:
                if self.client is not client or (given := fresh.client_id) is None:
                    return
                self.client, self.fresh, self._heard = fresh, None, time.monotonic()
                self._session, self.proven_until, self.lost_why = given[0], 0.0, OLDER
            self._stop(client, patience=0)
            self._wake.set()

    def _forget_fresh(self) -> None:
        fresh, self.fresh = self.fresh, None
        if fresh is not None:
            self._stop(fresh, patience=0)

    def _own(self) -> None:
        if self._pid != os.getpid():
            raise Unavailable(f"This ZooKeeper session belongs to process {self._pid}. Connect again after a fork")
        if self._closed:
            raise Unavailable("This store is closed. Connect again")

    # --- calls

    def _read(self, submit: Callable[[Any], Any]) -> Any:
        """A read, sent again over a new connection within the call's time-out. Raises NoNodeError, NoAuthError,
        Unavailable."""
        self._own()
        end = time.monotonic() + self.call_timeout
        while (left := end - time.monotonic()) > 0:
            self.asked += 1
            if self.client.state == KazooState.CONNECTED:
                try:
                    return self._call(self.client, submit, left)
                except (NoNodeError, NoAuthError):
                    raise
                except (Unavailable, Unknown):
                    pass
            with self._changed:
                self._changed.wait(min(left, 0.05))
        why, mend = self.access.why_not(self.hosts, self.unwelcome)
        raise Unavailable(f"ZooKeeper at {self.hosts} did not answer within {self.call_timeout:g} s ({why}). {mend}")

    def _call(self, client: Any, submit: Callable[[Any], Any], timeout: float) -> Any:
        """One request and its answer. Raises NoNodeError, NoAuthError, Unavailable (not sent), Unknown (no answer)."""
        sent, session = time.monotonic(), self._session
        try:
            answer = submit(client).get(timeout=timeout)
        except (NoNodeError, NoAuthError):
            self._acknowledge(client, session, sent)
            raise
        except ConnectionClosedError as error:
            raise Unavailable("No connection to ZooKeeper: nothing was sent. Wait until it is connected") from error
        except (KazooException, KazooTimeoutError) as error:
            raise Unknown(f"No reply from ZooKeeper ({type(error).__name__}). Read back before deciding") from error
        self._acknowledge(client, session, sent)
        return answer

    def _acknowledge(self, client: Any, session: int, sent: float) -> None:
        """The server restarted the session's timer when it received the request, so not before the request was sent."""
        if client is self.client and session == self._session:
            self.proven_until = max(self.proven_until, sent + FRACTION * self.negotiated)
            with self._changed:
                self._changed.notify_all()
