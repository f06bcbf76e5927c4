"""A gate before the registry of the tests: it wants a login or a certificate, and can be shut."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.request import urlopen


class Gate:
    """`login` is the header that a request must have; `asked` are the paths of those that passed."""

    def __init__(
        self, behind: str, login: str | None = None, certificate: Path | None = None, key: Path | None = None
    ) -> None:
        self.behind, self.login, self.asked, self.shut = behind, login, list[str](), False
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, body = gate.answer(self.path, self.headers.get("Authorization"))
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://localhost:{self.server.server_port}"
        if certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
            context.load_cert_chain(certificate, key)
            context.verify_mode = ssl.CERT_REQUIRED
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.address = self.address.replace("http", "https")
        self.thread = Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def answer(self, path: str, login: str | None) -> tuple[int, bytes]:
        """What the registry answers."""
        if self.shut:
            return 503, b"away"
        if login != self.login:
            return 401, b"no"
        self.asked.append(path)
        try:
            with urlopen(f"{self.behind}{path}") as found:
                return 200, found.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@contextmanager
def open_gate(behind: str, **more: object) -> Iterator[Gate]:
    """A gate that is closed at the end."""
    gate = Gate(behind, **more)  # type: ignore[arg-type]
    try:
        yield gate
    finally:
        gate.close()
