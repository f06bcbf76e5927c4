"""The client of a schema registry, and what a declaration may not say about one."""

import json
import socket
from typing import Any

import pytest

from rota.dataplane.kafka import schema_registry
from rota.dataplane.kafka.schema_registry import SchemaRegistry, UnknownSchema
from rota.dataplane.ports import INSPECT
from rota.errors import ConfigError
from rota.kafka import kafka
from tests.dataplane.kafka.gate import Gate, open_gate
from tests.dataplane.kafka.registry_server import RegistryServer
from tests.dataplane.kafka.topics import Worlds

UNKNOWN = 2**31 - 1  # an id that no registry of the tests has


def test_an_address_of_another_server_is_no_unknown_id(worlds: Worlds, registry: RegistryServer) -> None:
    """Its 404 would put a whole topic into the quarantine."""
    with pytest.raises(ConnectionError, match=r"Schema registry at .*HTTP 404"):
        SchemaRegistry(registry.address.removesuffix("/apis/ccompat/v7")).read_id(1)
    with pytest.raises(UnknownSchema, match="no such id"):
        SchemaRegistry(registry.address).read_id(UNKNOWN)
    with pytest.raises(UnknownSchema, match="no such subject"):
        SchemaRegistry(registry.address).read_version("no-such-subject")
    world = worlds.make(more=f', format="avro", registry={registry.address!r}')
    with pytest.raises(ConfigError, match=rf"Subject {worlds.topic}-value .* Register the schema, or give the subject"):
        world.ports.source.observe(("p:0",), INSPECT)


def test_an_answer_that_is_no_schema_is_no_bad_value(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the values of a topic would be bad because of a wrong address."""
    monkeypatch.setattr(gate, "answer", lambda *_: (200, b'{"message": "welcome"}'))
    for ask in (
        lambda: SchemaRegistry(gate.address).read_avro(1),
        lambda: SchemaRegistry(gate.address).read_version("a"),
    ):
        with pytest.raises(ConnectionError, match="Schema registry answers what is no schema"):
            ask()


def test_an_id_that_one_replica_lacks_is_read_from_another(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else good records would be put into the quarantine while a replica is behind."""
    lacks = json.dumps({"error_code": 40403, "message": "No schema"}).encode()
    with open_gate(gate.address) as behind:
        monkeypatch.setattr(behind, "answer", lambda *_: (404, lacks))
        monkeypatch.setattr(gate, "answer", lambda *_: (200, json.dumps({"schema": '"long"'}).encode()))
        both = f"{behind.address}, {gate.address}"
        assert SchemaRegistry(both).read_id(7).text == '"long"'
        monkeypatch.setattr(gate, "answer", lambda *_: (503, b"away"))
        with pytest.raises(UnknownSchema, match="no such id: No schema"):
            SchemaRegistry(both).read_id(7)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"registry": ""}, "give an address with format avro, json-schema, protobuf"),
        ({"format": "json"}, "give an address with format avro, json-schema, protobuf"),
        ({"registry": "http://me:word@host"}, "registry= of .* has a login. Give registry_client="),
        ({"options": {"mode": "FAILFAST"}}, "mode. Known: subject, version, avroSchema"),
        ({"registry_client": {"password": "x"}}, "Known: basic.auth.user.info"),
        ({"registry_client": {"basic.auth.user.info": "me:word"}}, r"is a secret. Give '\$\{VAR\}'"),
        ({"registry_client": {"bearer.auth.token": "abc"}}, r"is a secret. Give '\$\{VAR\}'"),
    ],
)
def test_a_registry_that_no_run_could_use_is_refused(more: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        kafka("h:1", "t", **{"schema": "n int", "format": "avro", "registry": "http://h", **more})  # type: ignore[arg-type]


def test_an_answer_that_takes_too_long_is_a_failure(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(ConnectionError, match=r"Schema registry at .*timed out"):
            SchemaRegistry(f"http://127.0.0.1:{silent.getsockname()[1]}").read_id(1)
