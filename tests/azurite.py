"""Azurite, Microsoft's own emulator of Azure's blobs: `make tools` installs it. It keeps what it holds in memory."""

import base64
import hmac
import os
import signal
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rota.local.child import Child
from rota.machine import free_port, is_listening
from tests.waiting import wait_until

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # each Azurite's
PROGRAM = Path(sys.prefix, "share", "rota", "azurite", "node_modules", ".bin", "azurite-blob")
VERSION = "2021-08-06"  # of the service's protocol


@dataclass(frozen=True)
class Azurite:
    """A server that answers."""

    endpoint: str

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a process that uses the server."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
        }

    def make_container(self) -> str:
        """The URL of a new one: no client that rota uses makes any."""
        name, now = f"c{uuid.uuid4().hex[:12]}", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        signed = (
            f"PUT{12 * chr(10)}x-ms-date:{now}\nx-ms-version:{VERSION}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        )
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), "sha256")).decode()
        headers = {
            "x-ms-date": now,
            "x-ms-version": VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            "Content-Length": "0",
        }
        asked = urllib.request.Request(f"{self.endpoint}/{name}?restype=container", method="PUT", headers=headers)
        with urllib.request.urlopen(asked) as answer:
            assert answer.status == 201
        return f"az://{name}"


@contextmanager
def serve_azurite(folder: Path) -> Iterator[Azurite]:
    """A server on loopback, with its log in the folder."""
    port = free_port()
    command = [str(PROGRAM), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    server = Child("azurite", command, folder / "azurite.log", os.environ, signal.SIGTERM)
    try:
        wait_until(lambda: is_listening(port))
        yield Azurite(f"http://127.0.0.1:{port}/{ACCOUNT}")
    finally:
        server.end(patience=0)
