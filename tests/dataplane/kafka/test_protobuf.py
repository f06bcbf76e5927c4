"""Topics of Protobuf with a real registry, on a real broker, Spark and tables."""

import pytest
from google.protobuf.message_factory import GetMessageClass

from rota.dataplane.formats.protobuf import choose_message, compile_text
from rota.dataplane.ports import INSPECT
from rota.errors import ConfigError, EnvironmentFailed
from tests.dataplane.kafka.gate import Gate
from tests.dataplane.kafka.registry_server import RegistryServer
from tests.dataplane.kafka.topics import Worlds, commit, read

UNKNOWN = 2**31 - 1  # an id that no registry of the tests has
ADDRESS = 'syntax = "proto3"; package shop; message Address { string street = 1; }'
HEAD = 'syntax = "proto3"; package shop; import "address.proto";'
FIRST = f"{HEAD} message Order {{ int32 n = 1; Address home = 2; }} message Other {{ int32 n = 1; }}"
SECOND = f"{HEAD} message Order {{ int32 number = 1; Address home = 2; optional string note = 3; }}"


def encode(id: int, path: bytes = b"\x00", text: str = FIRST, **fields: object) -> bytes:
    made = GetMessageClass(choose_message(compile_text(text, {"address.proto": ADDRESS})))(**fields)
    return b"\x00" + id.to_bytes(4, "big") + path + made.SerializeToString()


def register(worlds: Worlds, registry: RegistryServer, *versions: str) -> list[int]:
    """The ids of versions of the topic's schema, which import another one."""
    registry.register(f"{worlds.topic}-address", ADDRESS, kind="PROTOBUF")
    of = {"address.proto": (f"{worlds.topic}-address", 1)}
    return [registry.register(f"{worlds.topic}-value", text, of, kind="PROTOBUF") for text in versions]


def declare(address: str, more: str = "") -> str:
    return f', format="protobuf", registry={address!r}{more}'


def test_records_are_in_the_table_and_bad_ones_in_the_quarantine_with_offset_and_id(
    worlds: Worlds, registry: RegistryServer
) -> None:
    (id,) = register(worlds, registry, FIRST)
    world = worlds.make(
        schema="n int, home struct<street string>", more=declare(registry.address, ', columns=("key",)')
    )
    good = encode(id, n=5, home={"street": "x"})
    bad = [good[:-1], encode(UNKNOWN, n=1), encode(id, b"\x02\x02", n=1), b"{}", None]
    worlds.broker.produce(worlds.topic, 0, [good, *bad, encode(id)], key=lambda n: b"k%d" % n)
    world.give("0")
    done = commit(world, "0")["p:0"]
    assert (done.end, done.rows, done.bad_rows) == (7, 2, 5)
    assert read(world, "_offset", "_key", "n", "home") == [(0, b"k0", 5, {"street": "x"}), (6, b"k6", 0, None)]
    reasons = dict(read(world, "_offset", "_reason", table="quarantine"))
    assert reasons[1].startswith(f"schema id {id}: DecodeError")
    assert reasons[2].startswith(f"schema id {UNKNOWN}: the registry has no such id")
    assert reasons[3] == f"schema id {id}: message shop.Other, and not shop.Order"
    assert reasons[4] == reasons[5] == "it does not begin with a byte 0 and the id of a schema in four bytes"


def test_a_renamed_field_keeps_its_values_and_a_new_one_is_null(worlds: Worlds, registry: RegistryServer) -> None:
    ids = register(worlds, registry, FIRST, SECOND)
    world = worlds.make(schema="number bigint, note string", more=declare(registry.address))
    worlds.broker.produce(worlds.topic, 0, [encode(ids[0], n=1), encode(ids[1], text=SECOND, number=2, note="b")])
    world.give("0")
    commit(world, "0")
    assert read(world, "number", "note") == [(1, None), (2, "b")]
    world = worlds.open(schema="gone int", more=declare(registry.address))
    with pytest.raises(ConfigError, match=r"has no field gone\. Declare some of its fields: `number` int"):
        world.ports.source.observe(("p:0",), INSPECT)


def test_a_registry_that_is_down_parks_nothing_and_runs_continue_once_it_is_back(
    worlds: Worlds, registry: RegistryServer, gate: Gate
) -> None:
    (id,) = register(worlds, registry, FIRST)
    world = worlds.make(more=declare(gate.address))
    worlds.broker.produce(worlds.topic, 0, [encode(id, n=1)])
    world.give("0")
    gate.shut = True
    with pytest.raises(EnvironmentFailed, match="The schema registry at http://localhost"):
        world.run("0")
    gate.shut = False
    assert not world.tree.parked()
    commit(world, "0")
    assert read(world, "n") == [(1,)]
