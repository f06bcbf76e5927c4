"""A proxy before a bucket of the tests, that does what a store does on a bad day. It forwards each request as it is, with
the `Host` that was signed, to a real store, which alone judges races."""

import http.client
import random
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rota.local.bucket import BucketServer

UNAVAILABLE, SLOW, LATE, RESET, LOST = "unavailable", "slow", "late", "reset", "lost"
CUT = "cut"  # of an answer half the bytes come
LAGS = "lags"  # a list lacks all that came in the last seconds
FAULTS = (UNAVAILABLE, SLOW, LATE, RESET, LOST, CUT, LAGS)
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
SECONDS = 0.5
BEHIND = 3.0  # seconds
CONTENTS = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
MODIFIED = re.compile(rb"<LastModified>([^<]+)</LastModified>")
NEWEST = re.compile(rb"<Contents>(?:(?!<Contents>).)*</Contents>(?!.*<Contents>)", re.DOTALL)


@dataclass
class FaultyStore:
    """`choose` returns what happens to a request with this method and target (path and query): one of `FAULTS`, or nothing.
    `before` is called before a request is forwarded. `struck`: how often each fault was."""

    server: BucketServer
    choose: Callable[[str, str], str] = lambda *_: ""
    before: Callable[[str, str], None] = lambda *_: None
    struck: Counter[str] = field(default_factory=Counter)


def choose_at_random(seed: int, ratio: float) -> Callable[[str, str], str]:
    """Faults of each kind; a list alone comes late or lags."""
    chance, lock = random.Random(seed), threading.Lock()

    def choose(_: str, target: str) -> str:
        with lock:
            fault = chance.choice(FAULTS) if chance.random() < ratio else ""
        return "" if fault in (LATE, LAGS) and "list-type=2" not in target else fault

    return choose


def drop_young(found: re.Match[bytes]) -> bytes:
    """Of a list the entry of an object, unless it came in the last seconds."""
    said = MODIFIED.search(found[0])
    assert said, found[0]
    age = datetime.now(UTC) - datetime.fromisoformat(said[1].decode().replace("Z", "+00:00"))
    return b"" if age.total_seconds() < BEHIND else found[0]


@contextmanager
def serve_faults(server: BucketServer) -> Iterator[FaultyStore]:
    """The same store, at another endpoint."""
    target = server.endpoint.rpartition("/")[2]

    class Forward(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_any(self) -> None:
            body = self.read_body()
            fault = store.choose(self.command, self.path)
            store.struck[fault] += 1
            if fault == RESET:
                self.end()
            elif fault == UNAVAILABLE:
                self.answer(503, [("Content-Type", "application/xml")], SLOW_DOWN)
            else:
                self.forward(body, fault)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = do_any  # noqa: N815

        def read_body(self) -> bytes:
            """Arrow sends what it writes in chunks."""
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def forward(self, body: bytes, fault: str) -> None:
            if fault == SLOW:
                ended.wait(SECONDS)
            store.before(self.command, self.path)
            link = http.client.HTTPConnection(target)
            link.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect", "transfer-encoding"):
                    link.putheader(name, value)
            if "Transfer-Encoding" in self.headers:
                link.putheader("Content-Length", str(len(body)))
            link.endheaders(body)
            with link.getresponse() as answer:
                content, headers = answer.read(), answer.getheaders()
            link.close()
            if fault == LOST:
                self.end()
                return
            if fault in (LATE, LAGS):
                content = NEWEST.sub(b"", content) if fault == LATE else CONTENTS.sub(drop_young, content)
                headers = [one for one in headers if one[0] != "Content-Length"]
            self.answer(answer.status, headers, content, cut=fault == CUT)

        def answer(self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("connection", "transfer-encoding"):
                    self.send_header(name, value)
            if not any(name.lower() == "content-length" for name, _ in headers):
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[: len(content) // 2] if cut else content)
            if cut:
                self.wfile.flush()
                self.end()

        def end(self) -> None:
            """The client sees a reset."""
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True

        def handle(self) -> None:
            with suppress(ConnectionError):
                super().handle()

    class Server(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 128

        def shutdown_request(self, request: object) -> None:
            request.close()  # type: ignore[attr-defined]  # no FIN before a reset

    ended = threading.Event()
    proxy = Server(("127.0.0.1", 0), Forward)
    store = FaultyStore(replace(server, endpoint=f"http://127.0.0.1:{proxy.server_port}"))
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        ended.set()
        proxy.shutdown()
        thread.join()
        proxy.server_close()
