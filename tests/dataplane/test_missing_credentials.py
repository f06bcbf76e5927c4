"""A process without keys of a bucket reports that, and not the address of the machine's role service."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rota import stores
from rota.stores import list_after


class Refusing(BaseHTTPRequestHandler):
    """Answers like a machine without a role."""

    def do_PUT(self) -> None:
        self.send_response(403)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(autouse=True)
def no_role(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()


def test_missing_credentials_are_reported_as_such() -> None:
    with pytest.raises(OSError, match=r"this process has no AWS credentials\. Set AWS_ACCESS_KEY_ID and AWS_SECRET"):
        list_after("s3://bucket/land", "a", "")


def test_without_the_words_of_a_role_the_address_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation."""
    monkeypatch.setattr(stores, "ROLE", "no such words")
    with pytest.raises(OSError, match="Error performing PUT http://127"):
        list_after("s3://bucket/land", "a", "")
