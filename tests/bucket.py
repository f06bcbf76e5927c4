"""A bucket of the tests' own: versitygw, a server of S3 over a folder, on loopback. It judges races: of conditional puts one
alone wins. It keeps a log of its requests, by which they are counted."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import S3Store

from rota.machine import free_port
from rota.stores import is_url, open_objects
from tests.waiting import LONG, wait_until

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "rota-tests-access", "AWS_SECRET_ACCESS_KEY": "rota-tests-secret-4711"}
# Becomes the program given after the parent's pid; the kernel kills it when the parent dies.
LAUNCH = """
import ctypes, os, sys
ctypes.CDLL(None, use_errno=True).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Place:
    """What a pipeline calls `address`, and in which folder its files are (`files`), so that a checker reads them without
    asking anybody: on a disk the same path, of a bucket the folder in which the server keeps it."""

    address: str
    files: Path

    def __truediv__(self, name: str) -> "Place":
        return Place(f"{self.address}/{name}", self.files / name)

    def put(self, path: str, content: bytes) -> None:
        """Lands one file, or overwrites it."""
        if is_url(self.address):
            open_objects(self.address).put(path, content)
            return
        file = self.files / path
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_name(f".{file.name}")
        aside.write_bytes(content)
        aside.rename(file)


def on_disk(folder: Path) -> Place:
    """This folder."""
    return Place(str(folder), folder)


@dataclass(frozen=True)
class BucketServer:
    """A server that answers. `data` has a folder for each of its buckets; `log` a line for each request."""

    endpoint: str
    data: Path
    log: Path

    @property
    def environ(self) -> dict[str, str]:
        """What a process is told that is to speak to it."""
        return {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def make_bucket(self) -> str:
        """The name of a new bucket. (The server takes a folder for one.)"""
        name = f"b{uuid.uuid4().hex[:12]}"
        (self.data / name).mkdir()
        return name

    def make_place(self) -> Place:
        """A new bucket."""
        name = self.make_bucket()
        return Place(f"s3://{name}", self.data / name)

    def count_requests(self) -> int:
        """How many it has answered since it began."""
        return len(self.log.read_bytes().splitlines()) if self.log.exists() else 0

    def list_requests(self, since: int = 0) -> list[str]:
        """Operation and key of those that it answered, from that one on."""
        lines = self.log.read_text().splitlines()[since:] if self.log.exists() else []
        return [" ".join(line.split()[i] for i in (7, 8)) for line in lines]


@contextmanager
def serve_buckets(folder: Path, *more: str) -> Iterator[BucketServer]:
    """A server of its own, which ends with this process at the latest."""
    program = Path(sys.executable).with_name("versitygw")
    found = str(program) if program.exists() else shutil.which("versitygw")
    assert found, "versitygw is not installed. Type: make tools"
    port, data, log = free_port(), folder / "data", folder / "requests.log"
    data.mkdir(parents=True)
    root = ["--access", CREDENTIALS["AWS_ACCESS_KEY_ID"], "--secret", CREDENTIALS["AWS_SECRET_ACCESS_KEY"]]
    command = [found, "--port", f"127.0.0.1:{port}", *root, "--quiet", "--access-log", str(log), *more]
    with (folder / "out").open("ab") as out:
        server = subprocess.Popen(
            [sys.executable, "-IS", "-c", LAUNCH, str(os.getpid()), *command, "posix", str(data)],
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        wait_until(lambda: _answers(port, server))
        yield BucketServer(f"{'https' if '--cert' in more else 'http'}://127.0.0.1:{port}", data, log)
    finally:
        os.kill(server.pid, signal.SIGKILL)
        server.wait(LONG)


def _answers(port: int, server: "subprocess.Popen[bytes]") -> bool:
    assert server.poll() is None, "versitygw ended; see the file out beside its data"
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def list_objects(store: S3Store, prefix: str = "") -> dict[str, int]:
    """Key -> bytes of all below the prefix."""
    return {str(one["path"]): int(one["size"]) for page in obstore.list(store, prefix) for one in page}
