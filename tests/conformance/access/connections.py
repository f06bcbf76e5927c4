"""Connections and processes with the credentials of a role."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rota.coordination import client
from rota.coordination.access import Access
from rota.coordination.client import ZooKeeperStore
from rota.settings import Settings
from tests.guarded import acl
from tests.waiting import LONG

ROOT = Path(__file__).parents[3]

SCHEMES = ("digest", "sasl", "x509")


def open_store(environ: Mapping[str, str]) -> ZooKeeperStore:
    """As a process opens it, with more patience: the first handshake of a server takes seconds on a busy machine."""
    settings = Settings.from_environment(environ)
    timeout = settings.session_timeout.total_seconds()
    return client.connect(settings.zookeeper, timeout, connect_timeout=LONG, access=Access.of(settings))


def misname(scheme: str, *roles: str) -> str:
    """ROTA_ZOOKEEPER_ACL that gives these roles to another identity."""
    named = dict(entry.split("=", 1) for entry in acl(scheme).split(";"))
    return ";".join(f"{role}={f'{scheme}:CN=not-me' if role in roles else named[role]}" for role in named)


def start_command(environ: Mapping[str, str], *words: str) -> "subprocess.Popen[str]":
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    return subprocess.Popen(
        [sys.executable, "-m", "rota", *words],
        env=plain | {"PYTHONPATH": str(ROOT)} | dict(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def hear(process: "subprocess.Popen[str]", text: str) -> str:
    """The first line of its errors that holds the text; "" if it ended without one."""
    assert process.stderr is not None
    return next((line for line in process.stderr if text in line), "")


def run_command(environ: Mapping[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    process = start_command(environ, *words)
    out, error = process.communicate(timeout=LONG)
    return subprocess.CompletedProcess(words, process.returncode, out, error)
