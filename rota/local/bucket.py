"""An S3 server over a folder, on loopback: versitygw. It accepts one of several concurrent conditional puts. Tests and
benchmarks count requests in its log.

Invariant: the server ends with this process at the latest.
"""

import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rota.errors import ConfigError, EnvironmentFailed
from rota.local.child import Child
from rota.machine import free_port, is_listening

if TYPE_CHECKING:
    from pyarrow import fs

PROGRAM = "versitygw"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "rota-local-access", "AWS_SECRET_ACCESS_KEY": "rota-local-secret-4711"}
REGION = "us-east-1"
ANSWERING = 60.0  # seconds in which it must answer; usually it takes 0.1 s


@dataclass(frozen=True, slots=True)
class BucketServer:
    """A server that answers. `data` has a folder for each of its buckets; `log` a line for each request."""

    endpoint: str
    data: Path
    log: Path

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a process that uses the server."""
        return {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def make_bucket(self, name: str = "") -> str:
        """Make a bucket, unless it exists; without a name, a new one. (To the server, a bucket is a folder.)

        Returns:
            The name of the bucket.
        """
        name = name or f"b{uuid.uuid4().hex[:12]}"
        (self.data / name).mkdir(exist_ok=True)
        return name

    def open(self, location: str) -> "fs.FileSystem":
        """Open `s3://bucket/prefix` as a filesystem of Arrow."""
        from pyarrow import fs

        scheme, _, host = self.endpoint.partition("://")
        access, secret = CREDENTIALS.values()
        files = fs.S3FileSystem(
            access_key=access,
            secret_key=secret,
            endpoint_override=host,
            scheme=scheme,
            region=REGION,
            allow_delayed_open=True,  # a small file is one request
        )
        return fs.SubTreeFileSystem(location.removeprefix("s3://"), files)

    def count_requests(self) -> int:
        """Return the number of requests that the server answered."""
        return len(self.log.read_bytes().splitlines()) if self.log.exists() else 0

    def list_requests(self, since: int = 0) -> list[str]:
        """Return operation and key of each answered request, from number `since` on."""
        lines = self.log.read_text().splitlines()[since:] if self.log.exists() else []
        words = (line.split() for line in lines)
        return [f"{each[7]} {each[8]}" for each in words if len(each) > 8]  # the last line may be incomplete


def find_program() -> str:
    """Find the program of the server. Raises ConfigError if it is not installed."""
    beside = Path(sys.executable).with_name(PROGRAM)
    found = str(beside) if beside.exists() else shutil.which(PROGRAM)
    if not found:
        raise ConfigError(f"{PROGRAM}, a server of S3, is not installed. In a checkout of rota type: make tools")
    return found


@contextmanager
def serve_buckets(folder: Path, *more: str) -> Iterator[BucketServer]:
    """Run a server over the folder.

    Args:
        folder: the data, the log of requests and the output.
        more: options of the program.

    Raises:
        ConfigError: the program is not installed.
        EnvironmentFailed: the server does not answer.
    """
    folder = folder.resolve()  # the working directory of the program is its data folder
    port, data, log = free_port(), folder / "data", folder / "requests.log"
    root = ["--access", CREDENTIALS["AWS_ACCESS_KEY_ID"], "--secret", CREDENTIALS["AWS_SECRET_ACCESS_KEY"]]
    command = [find_program(), "--port", f"127.0.0.1:{port}", *root, "--quiet", "--access-log", str(log), *more]
    data.mkdir(parents=True, exist_ok=True)  # an earlier stack may have made it
    server = Child(PROGRAM, [*command, "posix", str(data)], folder / "out", os.environ, signal.SIGTERM)
    try:
        until = time.monotonic() + ANSWERING
        while not is_listening(port):
            if not server.running or time.monotonic() > until:
                raise EnvironmentFailed(f"{PROGRAM} {server.describe_end()}: {server.read_log_end()}. See {server.log}")
            time.sleep(0.02)
        yield BucketServer(f"{'https' if '--cert' in more else 'http'}://127.0.0.1:{port}", data, log)
    finally:
        server.end(patience=0)
