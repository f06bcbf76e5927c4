"""A registry of schemas of the tests' own, and a stranger that registers schemas and writes values by them."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from rota.java import LIGHT, find_java
from rota.local.child import Child
from rota.machine import free_port
from tests.waiting import wait_until

FOLDER = Path(sys.prefix, "share", "rota", "registry")


class RegistryServer:
    """A running registry, which keeps its schemas in memory."""

    def __init__(self, folder: Path) -> None:
        (jar,) = FOLDER.glob("*-runner.jar")
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        environ = {**os.environ, "QUARKUS_HTTP_PORT": str(self.port), "QUARKUS_HTTP_HOST": "127.0.0.1"}
        command = [str(find_java()), "-Xmx256m", *LIGHT, "-jar", str(jar)]
        self.process = Child("registry", command, folder / "log", environ, signal.SIGTERM)

    def wait(self) -> "RegistryServer":
        """Waits until it answers."""

        def answers() -> bool:
            assert self.process.running, self.process.read_log_end(20)
            try:
                with urlopen(f"{self.address}/subjects", timeout=5) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        wait_until(answers)
        return self

    def stop(self) -> None:
        self.process.end(5)

    def register(
        self, subject: str, schema: Any, references: Mapping[str, tuple[str, int]] | None = None, kind: str = "AVRO"
    ) -> int:
        """The id of the schema as the next version of the subject; `references` are name -> subject and version."""
        named = [{"name": n, "subject": s, "version": v} for n, (s, v) in (references or {}).items()]
        text = schema if kind == "PROTOBUF" else json.dumps(schema)
        body = json.dumps({"schema": text, "schemaType": kind, "references": named}).encode()
        request = Request(f"{self.address}/subjects/{subject}/versions", body, {"Content-Type": "application/json"})
        try:
            with urlopen(request) as answer:
                return int(json.loads(answer.read())["id"])
        except HTTPError as error:
            raise AssertionError(error.read()) from error
