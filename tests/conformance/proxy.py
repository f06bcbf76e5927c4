"""A TCP proxy on loopback that makes the faults a network makes, frame by frame of ZooKeeper's protocol."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

MULTI = 14


def is_multi(frame: bytes) -> bool:
    """Whether a request is a multi."""
    return len(frame) >= 8 and struct.unpack_from("!i", frame, 4)[0] == MULTI


class Proxy:
    """Forwards to `target_port`. `stalled` holds every byte and the end of a connection, as packet loss does. The next
    `deaf` connections are accepted and never read."""

    def __init__(self, target_port: int) -> None:
        self.target = target_port
        self.stalled = self.refusing = False
        self.fired = self.deaf = 0
        self._unread: list[socket.socket] = []
        self._arm: tuple[str, Callable[[bytes], bool]] | None = None
        self._links: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def lose(self, what: str, which: Callable[[bytes], bool] = is_multi) -> None:
        """The next such "request" is not forwarded, or its "reply" is swallowed; the connection breaks."""
        self._arm = (what, which)

    def cut(self) -> None:
        """Closes every connection."""
        with self._lock:
            links = list(self._links)
        for link in links:
            self._close(*link)

    def close(self) -> None:
        self.stalled = False
        self.refusing = True
        self._listener.close()
        self._close(*self._unread)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.deaf:
                self.deaf -= 1
                self._unread.append(near)
                continue
            try:
                if self.refusing:
                    raise OSError
                far = socket.create_connection(("127.0.0.1", self.target), 5)
            except OSError:
                near.close()
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            swallow = threading.Event()
            with self._lock:
                self._links.add((near, far))
            threading.Thread(target=self._pump, args=(near, far, True, swallow), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, False, swallow), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, up: bool, swallow: threading.Event) -> None:
        try:
            while True:
                head = _read(source, 4)
                frame = _read(source, struct.unpack("!i", head)[0])
                self._hold()
                if up and self._arm is not None and self._arm[1](frame):
                    what, self._arm = self._arm[0], None
                    self.fired += 1
                    if what == "request":
                        raise OSError
                    swallow.set()
                elif not up and swallow.is_set():
                    raise OSError
                sink.sendall(head + frame)
        except OSError:
            pass
        finally:
            self._hold()
            self._close(source, sink)

    def _hold(self) -> None:
        while self.stalled:
            time.sleep(0.005)

    def _close(self, *ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        with self._lock:
            self._links = {link for link in self._links if link[0] not in ends}


def _read(source: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = source.recv(size - len(got))
        if not more:
            raise OSError
        got += more
    return got
