"""Debian's PostgreSQL as Dagster's storage: one server of the test's own on loopback."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import psycopg2

from rota.machine import free_port
from tests.waiting import LONG, wait_until

SETTINGS = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=200")


class Postgres:
    """A context manager. The server refuses to run as root, so root runs it as Debian's user `postgres`."""

    def __init__(self) -> None:
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        assert programs, "PostgreSQL's server is not here. Try: sudo apt install postgresql"
        self.programs, self.port = programs[-1], free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="rota-postgres-"))
        self.user = "postgres" if os.geteuid() == 0 else None
        if self.user:
            shutil.chown(self.folder, self.user)

    @property
    def url(self) -> str:
        return f"postgresql+psycopg2://rota@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        data = self.folder / "data"
        new = [self.programs / "initdb", "-D", data, "-U", "rota", "-A", "trust", "--no-sync"]
        subprocess.run(new, check=True, stdout=subprocess.DEVNULL, user=self.user, cwd=self.folder)
        options = [word for setting in SETTINGS for word in ("-c", setting)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", data, "-p", str(self.port), *options],
                stdout=log, stderr=log, user=self.user, cwd=self.folder,
            )  # fmt: skip
        wait_until(self._answers)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGINT)  # ends its clients, too
        self.process.wait(LONG)
        shutil.rmtree(self.folder)

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            psycopg2.connect(host="127.0.0.1", port=self.port, user="rota", dbname="postgres").close()
        except psycopg2.OperationalError:
            return False
        return True
