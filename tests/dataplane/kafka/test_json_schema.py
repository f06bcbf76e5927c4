"""Topics of JSON Schema with a real registry, on a real broker, Spark and tables."""

import json
from typing import Any

import pytest

from rota.dataplane.formats.json_schemas import Checker
from rota.dataplane.ports import INSPECT
from rota.errors import EnvironmentFailed
from tests.dataplane.conftest import log
from tests.dataplane.kafka.gate import Gate
from tests.dataplane.kafka.registry_server import RegistryServer
from tests.dataplane.kafka.topics import Worlds, commit, read

UNKNOWN = 2**31 - 1  # an id that no registry of the tests has
DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
ADDRESS = {**DRAFT, "type": "object", "properties": {"street": {"type": "string"}}, "required": ["street"]}
ORDER = {
    **DRAFT,
    "type": "object",
    "properties": {"n": {"type": "integer", "maximum": 99}, "home": {"$ref": "address.json"}},
    "required": ["n"],
}


def encode(id: int, text: str | dict[str, Any]) -> bytes:
    written = text if isinstance(text, str) else json.dumps(text)
    return b"\x00" + id.to_bytes(4, "big") + written.encode()


def register(worlds: Worlds, registry: RegistryServer) -> int:
    """The id of the topic's schema, which refers to another one."""
    registry.register(f"{worlds.topic}-address", ADDRESS, kind="JSON")
    return registry.register(
        f"{worlds.topic}-value", ORDER, {"address.json": (f"{worlds.topic}-address", 1)}, kind="JSON"
    )


def declare(address: str, more: str = "") -> str:
    return f', format="json-schema", registry={address!r}{more}'


def test_valid_records_are_in_the_table_and_others_in_the_quarantine_with_offset_and_id(
    worlds: Worlds, registry: RegistryServer
) -> None:
    id = register(worlds, registry)
    avro = registry.register(f"{worlds.topic}-avro", {"type": "record", "name": "A", "fields": []})
    schema = "n int, home struct<street string>, extra string"
    world = worlds.make(schema=schema, more=declare(registry.address, ', columns=("key",)'))
    good = [
        encode(id, {"n": 1, "home": {"street": "x"}}),
        encode(id, {"n": 2, "extra": 1.50}),
        encode(id, '{"n": 3.0e0}'),
    ]
    bad = [
        (encode(id, {"n": "1"}), f'schema id {id}: n: "1" is not of type "integer"'),
        (encode(id, {"n": 100}), f"schema id {id}: n: 100 is greater than the maximum of 99"),
        (encode(id, {"n": 1, "home": {}}), f'schema id {id}: home: "street" is a required property'),
        (encode(id, "[1]"), f'schema id {id}: [1] is not of type "object"'),
        (encode(id, '{"n": 1'), f"schema id {id}: "),
        (encode(id, '{"n": 1} {"n": 2}'), f"schema id {id}: "),
        (encode(UNKNOWN, {"n": 1}), f"schema id {UNKNOWN}: the registry has no such id"),
        (encode(avro, {"n": 1}), f"schema id {avro}: it is of type AVRO, and not JSON"),
        (b'{"n": 1}', "it does not begin with a byte 0 and the id of a schema in four bytes"),
        (None, "it does not begin with a byte 0 and the id of a schema in four bytes"),
    ]
    worlds.broker.produce(worlds.topic, 0, [*good, *(value for value, _ in bad)], key=lambda n: b"k%d" % n)
    world.give("0")
    done = commit(world, "0")["p:0"]
    rows = sorted(log(world.table / "main").rows(), key=lambda row: row["_offset"])
    assert [(r["_offset"], r["_key"], r["n"], r["extra"]) for r in rows[:2]] == [
        (0, b"k0", 1, None),
        (1, b"k1", 2, "1.5"),
    ]
    assert rows[0]["home"] == {"street": "x"}
    found = {offset: (reason, raw, whole) for offset, reason, raw, whole in read(
        world, "_offset", "_reason", "_raw", "_raw_bytes", table="quarantine"
    )}  # fmt: skip
    assert (done.end, done.rows + done.bad_rows) == (len(good) + len(bad), len(good) + len(bad))
    for offset, (value, reason) in enumerate(bad, len(good)):
        assert found[offset][0].startswith(reason), (found[offset], reason)
        assert (found[offset][2] or found[offset][1].encode()) == (value or b"")
    assert found.keys() - {2} == set(range(len(good), len(good) + len(bad)))


def test_a_value_that_is_valid_and_does_not_fit_the_columns_is_bad(worlds: Worlds, registry: RegistryServer) -> None:
    id = register(worlds, registry)
    world = worlds.make(schema="n boolean", more=declare(registry.address, ', tombstones="keep"'))
    worlds.broker.produce(worlds.topic, 0, [encode(id, {"n": 1}), None])
    world.give("0")
    assert commit(world, "0")["p:0"].rows == 1
    assert read(world, "_offset", "n") == [(1, None)]
    assert read(world, "_reason", table="quarantine") == [(f"schema id {id}: not of the declared type: n",)]


def test_a_registry_that_is_down_parks_nothing_and_runs_continue_once_it_is_back(
    worlds: Worlds, registry: RegistryServer, gate: Gate
) -> None:
    id = register(worlds, registry)
    world = worlds.make(2, more=declare(gate.address))
    worlds.broker.produce(worlds.topic, 0, [encode(id, {"n": 1})])
    world.give("0", "1")
    gate.shut = True
    with pytest.raises(EnvironmentFailed, match="The schema registry at http://localhost"):
        world.run("0", "1")
    with pytest.raises(EnvironmentFailed, match="The schema registry at http://localhost"):
        world.ports.source.observe(("p:0",), INSPECT)
    gate.shut = False
    world.ports.source.observe(("p:0",), INSPECT)
    assert not world.tree.parked()
    world.run("0", "1")
    assert read(world, "n") == [(1,)]


def test_a_schema_without_a_draft_is_of_draft_7() -> None:
    """In later drafts an array of `items` is not a list of schemas."""
    schema = {"properties": {"n": {"items": [{"type": "integer"}]}}}
    for draft, bad in ((None, True), ("http://json-schema.org/draft-07/schema#", True)):
        found = schema if draft is None else {**schema, "$schema": draft}
        assert bool(Checker(lambda _, found=found: (found, {})).explain(encode(1, {"n": ["x"]}))) == bad
    broken = Checker(lambda _: ({"type": "nope"}, {}))
    assert broken.explain(encode(1, {})).startswith("schema id 1: ")
