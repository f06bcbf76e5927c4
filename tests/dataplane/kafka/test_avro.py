"""Topics of Avro with a real registry, on a real broker, Spark and tables."""

import json
import logging
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rota.dataplane.formats.avro_schemas import parse, write_ddl
from rota.dataplane.kafka.schema_registry import SchemaRegistry, UnknownSchema
from rota.dataplane.ports import INSPECT
from rota.errors import ConfigError, EnvironmentFailed
from tests.dataplane.avro_cases import encode, logical
from tests.dataplane.avro_cases import read as fastavro_reads
from tests.dataplane.conftest import log
from tests.dataplane.kafka.certificate import make_certificate
from tests.dataplane.kafka.gate import Gate, open_gate
from tests.dataplane.kafka.registry_server import RegistryServer
from tests.dataplane.kafka.topics import Worlds, commit, read
from tests.dataplane.tried import try_file
from tests.dataplane.world import World

EXTREMES = [  # types, and two values of each
    ("boolean", (True, False)), ("int", (-(2**31), 2**31 - 1)), ("long", (-(2**63), 2**63 - 1)),
    ("float", (0.5, float("-inf"))), ("double", (5e-324, -0.1)), ("string", ("", "é\0🦉")), ("bytes", (b"", b"\xff\x00")),
    ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, ("a", "b")),
    ({"type": "fixed", "name": "F", "size": 2}, (b"\x00\xff", b"ab")),
    (logical("string", "uuid"), (UUID(int=0), UUID(int=2**128 - 1))), (logical("int", "date"), (date.min, date.max)),
    (logical("long", "timestamp-millis"), (datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, 1, 2, 3, 4000, UTC))),
    (logical("long", "timestamp-micros"), (datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, 1, 2, 3, 4, UTC))),
    (logical("long", "local-timestamp-micros"), (datetime(1, 1, 2), datetime(9999, 12, 30, 1, 2, 3, 4))),
    (logical("bytes", "decimal", precision=38, scale=10), (Decimal("1e27"), Decimal("-0.0000000001"))),
    ({"type": "array", "items": ["null", "int"]}, ([], [1, None])),
]  # fmt: skip
UNKNOWN = 2**31 - 1  # an id that no registry of the tests has
PASSWORD, TOKEN = "correct-horse-battery", "token-horse-battery"


def order(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "n", "type": "int"}, *fields]}


def declare(address: str, more: str = "") -> str:
    return f', format="avro", registry={address!r}{more}'


def quarantined(world: World) -> list[Any]:
    return read(world, "_offset", "_reason", "_raw_bytes", table="quarantine")


def test_records_are_in_the_table_and_bad_ones_in_the_quarantine_with_offset_and_id(
    worlds: Worlds, registry: RegistryServer
) -> None:
    schema = order(
        {"name": "amount", "type": logical("bytes", "decimal", precision=9, scale=2)},
        {"name": "at", "type": logical("long", "timestamp-millis")},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "day", "type": logical("int", "date")}, {"name": "of", "type": ["string", "int"]}]}}},
    )  # fmt: skip
    id = registry.register(f"{worlds.topic}-value", schema)
    ddl = (
        "n bigint, amount decimal(9,2), at timestamp, tags map<string, string>, "
        "lines array<struct<day date, of struct<member0 string, member1 int>>>"
    )
    world = worlds.make(schema=ddl, more=declare(registry.address, ', columns=("key",)'))
    first = {
        "n": 1, "amount": Decimal("12.34"), "at": datetime(2026, 1, 2, 3, 4, 5, 6000, UTC), "tags": {"a": "b", "c": None},
        "lines": [{"day": date(2026, 1, 2), "of": "x"}, {"day": date(1, 1, 1), "of": 7}],
    }  # fmt: skip
    good = encode(schema, first, id)
    bad = [b"no Avro", good[:-1], good + b"!", encode(schema, first, UNKNOWN), None, b""]
    worlds.broker.produce(worlds.topic, 0, [good, *bad, good], key=lambda n: b"k%d" % n)
    world.give("0")
    done = commit(world, "0")["p:0"]
    assert (done.end, done.rows, done.bad_rows) == (8, 2, 6)
    rows = sorted(log(world.table / "main").rows(), key=lambda row: row["_offset"])
    assert [(row["_offset"], row["_key"], row["n"]) for row in rows] == [(0, b"k0", 1), (7, b"k7", 1)]
    assert {name: rows[0][name] for name in ("amount", "at")} == {name: first[name] for name in ("amount", "at")}
    assert dict(rows[0]["tags"]) == first["tags"]
    assert rows[0]["lines"] == [
        {"day": date(2026, 1, 2), "of": {"member0": "x", "member1": None}},
        {"day": date(1, 1, 1), "of": {"member0": None, "member1": 7}},
    ]
    found = quarantined(world)
    assert [offset for offset, _, _ in found] == [1, 2, 3, 4, 5, 6]
    reasons = {offset: reason for offset, reason, _ in found}
    assert (
        reasons[1] == reasons[5] == reasons[6] == "it does not begin with a byte 0 and the id of a schema in four bytes"
    )
    assert reasons[2] == f"schema id {id}: EOFError"
    assert reasons[3] == f"schema id {id}: 1 bytes follow the record"
    assert reasons[4].startswith(f"schema id {UNKNOWN}: the registry has no such id")
    assert {offset: raw for offset, _, raw in found if raw} == {
        offset: value
        for offset, value in enumerate([good, *bad])
        if offset in (2, 3, 4) and value and not is_text(value)
    }


def is_text(value: bytes) -> bool:
    try:
        return bool(value.decode()) or True
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize(("tombstones", "kept"), [("keep", [(0, 5), (1, None)]), ("skip", [(0, 5)])])
def test_tombstones_are_as_declared(worlds: Worlds, registry: RegistryServer, tombstones: str, kept: list[Any]) -> None:
    id = registry.register(f"{worlds.topic}-value", order())
    world = worlds.make(more=declare(registry.address, f", tombstones={tombstones!r}"))
    worlds.broker.produce(worlds.topic, 0, [encode(order(), {"n": 5}, id), None])
    world.give("0")
    done = commit(world, "0")["p:0"]
    assert (done.end, done.bad_rows) == (2, 0)
    assert read(world, "_offset", "n") == kept


def test_a_schema_evolves_while_its_records_are_read(worlds: Worlds, registry: RegistryServer) -> None:
    """A new field has its default in older records, a promoted type is the reader's, and a removed field keeps its values:
    the newest version with each declared column is the reader's."""
    subject, text = f"{worlds.topic}-value", {"name": "text", "type": "string", "default": "none"}
    versions = [order(), order(text), {**order(text), "fields": [{"name": "n", "type": "long"}, text]}]
    ids = [registry.register(subject, one) for one in versions]
    world = worlds.make(schema="n bigint, text string", more=declare(registry.address))
    values = [encode(versions[0], {"n": 1}, ids[0]), encode(versions[1], {"n": 2, "text": "b"}, ids[1])]
    values.append(encode(versions[2], {"n": 2**40, "text": "c"}, ids[2]))
    worlds.broker.produce(worlds.topic, 0, values)
    world.give("0")
    commit(world, "0")
    without = {**order(), "fields": [{"name": "n", "type": "long"}]}
    last = registry.register(subject, without)
    worlds.broker.produce(worlds.topic, 0, [values[1], encode(without, {"n": 4}, last)])
    commit(world, "0")
    assert read(world, "_offset", "n", "text") == [
        (0, 1, "none"), (1, 2, "b"), (2, 2**40, "c"), (3, 2, "b"), (4, 4, "none")
    ]  # fmt: skip
    world = worlds.open(schema="n bigint, text string", more=declare(registry.address, ', options={"version": "4"}'))
    with pytest.raises(
        ConfigError, match=r"version 4 of subject .* has no field text\. Declare some of its fields: `n` bigint"
    ):
        world.ports.source.observe(("p:0",), INSPECT)


def test_a_declared_schema_is_the_readers(worlds: Worlds, registry: RegistryServer) -> None:
    id = registry.register(f"any-{worlds.topic}", order())
    given = json.dumps({**order(), "fields": [{"name": "m", "aliases": ["n"], "type": "double"}]})
    world = worlds.make(schema="m double", more=declare(registry.address, f', options={{"avroSchema": {given!r}}}'))
    worlds.broker.produce(worlds.topic, 0, [encode(order(), {"n": 1}, id)])
    world.give("0")
    commit(world, "0")
    assert read(world, "m") == [(1.0,)]


def test_references_of_a_subject_are_resolved(worlds: Worlds, registry: RegistryServer) -> None:
    street = {"type": "record", "name": "Street", "namespace": "shop", "fields": [{"name": "name", "type": "string"}]}
    address = {
        "type": "record",
        "name": "Address",
        "namespace": "shop",
        "fields": [{"name": "street", "type": "shop.Street"}],
    }
    schema = order({"name": "home", "type": "shop.Address"}, {"name": "work", "type": ["null", "shop.Address"]})
    subjects = [f"{worlds.topic}-{name}" for name in ("street", "address", "value")]
    registry.register(subjects[0], street)
    registry.register(subjects[1], address, {"shop.Street": (subjects[0], 1)})
    id = registry.register(subjects[2], schema, {"shop.Address": (subjects[1], 1)})
    ddl = "n int, home struct<street struct<name string>>, work struct<street struct<name string>>"
    world = worlds.make(schema=ddl, more=declare(registry.address))
    whole = order(
        {"name": "home", "type": {**address, "fields": [{"name": "street", "type": street}]}}, schema["fields"][2]
    )
    place = {"street": {"name": "x"}}
    worlds.broker.produce(worlds.topic, 0, [encode(whole, {"n": 1, "home": place, "work": place}, id)])
    world.give("0")
    assert commit(world, "0")["p:0"].bad_rows == 0
    assert read(world, "home", "work") == [(place, place)]


def test_a_registry_that_is_down_parks_nothing_and_runs_continue_once_it_is_back(
    worlds: Worlds, registry: RegistryServer, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it fails in the tasks alone: they read the ids that the run did not need."""
    text = {"name": "text", "type": "string", "default": ""}
    ids = [registry.register(f"{worlds.topic}-value", one) for one in (order(), order(text))]
    world = worlds.make(2, more=declare(gate.address))
    for partition, one in enumerate((order(text), order())):
        record = {"n": partition, "text": "x"}
        worlds.broker.produce(worlds.topic, partition, [encode(one, record, ids[1 - partition])])
    world.give("0", "1")
    gate.shut = True
    with pytest.raises(
        EnvironmentFailed, match=r"The schema registry at http://localhost.*503.* See whether it is up\. It is tried"
    ):
        world.run("0", "1")
    gate.shut = False
    real = SchemaRegistry.read_version

    def shut_behind(self: SchemaRegistry, *of: str) -> Any:
        found = real(self, *of)
        gate.shut = True
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SchemaRegistry, "read_version", shut_behind)
        with pytest.raises(EnvironmentFailed, match=r"The schema registry at http://localhost"):
            world.run("0", "1")
    gate.shut = False
    gate.close()
    with pytest.raises(EnvironmentFailed, match=r"The schema registry at http://localhost.*Connection refused"):
        world.run("0", "1")
    assert not world.tree.parked()
    assert not (world.table / "main").exists() or not read(world, "n")
    world.write(world.text.replace(gate.address, f"{gate.address},{registry.address}"))
    commit(world, "0", "1")
    assert read(world, "n") == [(0,), (1,)]


def test_a_registry_that_is_down_counts_as_no_unknown_id(
    worlds: Worlds, registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ablation: with one error for both, a good record is in the quarantine."""
    id = registry.register(f"{worlds.topic}-value", order())
    registry.register(f"{worlds.topic}-value", order({"name": "m", "type": "int", "default": 0}))
    world = worlds.make(more=declare(registry.address))
    worlds.broker.produce(worlds.topic, 0, [encode(order(), {"n": 1}, id)])
    world.give("0")

    def confuse(self: SchemaRegistry, id: int) -> Any:
        raise UnknownSchema("connection refused")

    monkeypatch.setattr(SchemaRegistry, "read_avro", confuse)
    assert commit(world, "0")["p:0"].bad_rows == 1


def test_a_task_asks_for_each_id_once_and_for_the_readers_never(
    worlds: Worlds, registry: RegistryServer, gate: Gate
) -> None:
    ids = [
        registry.register(f"{worlds.topic}-value", order(*more))
        for more in ((), ({"name": "m", "type": "int", "default": 0},))
    ]
    world = worlds.make(more=declare(gate.address))
    new = encode(order({"name": "m", "type": "int"}), {"n": 2, "m": 1}, ids[1])
    worlds.broker.produce(worlds.topic, 0, [encode(order(), {"n": 1}, ids[0]), new] * 20)
    world.give("0")
    commit(world, "0")
    assert gate.asked == [f"/subjects/{worlds.topic}-value/versions/latest", f"/schemas/ids/{ids[0]}"]


@pytest.mark.parametrize("kind", ["Basic", "Bearer"])
def test_logins_reach_the_run_and_its_tasks_and_no_secret_is_shown(
    worlds: Worlds,
    registry: RegistryServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    coded = b64encode(f"reader:{PASSWORD}".encode()).decode() if kind == "Basic" else PASSWORD
    client = {
        "Basic": {"basic.auth.user.info": "reader:${REGISTRY_WORD}"},
        "Bearer": {"bearer.auth.token": "${REGISTRY_WORD}"},
    }
    with open_gate(registry.address, login=f"{kind} {coded}") as gate:
        world = make_two_versions(worlds, registry, gate, client[kind])
        monkeypatch.setenv("REGISTRY_WORD", "wrong-horse-battery")
        with pytest.raises(
            EnvironmentFailed, match=r"refuses the login: HTTP 401 .*\. Set REGISTRY_WORD for"
        ) as caught:
            world.run("0")
        monkeypatch.setenv("REGISTRY_WORD", PASSWORD)
        assert commit(world, "0")["p:0"].rows == 1
        assert not world.tree.parked()
    shown = f"{caught.value}{world.pipeline!r}{caplog.text}"
    assert not [one for one in (PASSWORD, "wrong-horse", coded) if one in shown]


def test_tls_with_a_certificate_reaches_the_run_and_its_tasks(
    worlds: Worlds, registry: RegistryServer, tmp_path: Path
) -> None:
    ca, _ = make_certificate(tmp_path)
    key, client = str(tmp_path / "key.pem"), {"ssl.ca.location": str(ca)}
    with open_gate(registry.address, certificate=ca, key=Path(key)) as gate:
        world = make_two_versions(worlds, registry, gate, client)
        with pytest.raises(EnvironmentFailed, match="The schema registry at https://localhost"):
            world.run("0")
        mine = {**client, "ssl.certificate.location": str(ca), "ssl.key.location": key}
        world.write(world.text.replace(repr(client), repr(mine)))
        assert commit(world, "0")["p:0"].rows == 1


def make_two_versions(worlds: Worlds, registry: RegistryServer, gate: Gate, client: dict[str, str]) -> World:
    """A record of the older version of a schema: the run asks for the newest one, and a task for the older."""
    newer = order({"name": "m", "type": "int", "default": 0})
    ids = [registry.register(f"{worlds.topic}-value", one) for one in (order(), newer)]
    world = worlds.make(more=declare(gate.address, f", registry_client={client!r}"))
    worlds.broker.produce(worlds.topic, 0, [encode(order(), {"n": 1}, ids[0])])
    world.give("0")
    return world


def test_each_type_is_in_the_table_as_fastavro_reads_it(worlds: Worlds, registry: RegistryServer) -> None:
    fields = [{"name": f"f{n}", "type": ["null", schema]} for n, (schema, _) in enumerate(EXTREMES)]
    schema = {"type": "record", "name": "All", "fields": fields}
    id = registry.register(f"{worlds.topic}-value", schema)
    ddl = ", ".join(f"f{n} {write_ddl(parse(kind))}" for n, (kind, _) in enumerate(EXTREMES))
    world = worlds.make(schema=ddl, more=declare(registry.address))
    records = [{f"f{n}": of[turn] for n, (_, of) in enumerate(EXTREMES)} for turn in range(2)]
    values = [encode(schema, one, id) for one in (*records, {f"f{n}": None for n in range(len(EXTREMES))})]
    worlds.broker.produce(worlds.topic, 0, values)
    world.give("0")
    assert commit(world, "0")["p:0"].bad_rows == 0
    rows = sorted(log(world.table / "main").rows(), key=lambda row: row["_offset"])
    for row, value in zip(rows, values, strict=True):
        for name, one in fastavro_reads(value, schema, schema).items():
            assert row[name] == (str(one) if isinstance(one, UUID) else one), name


def test_columns_that_do_not_fit_end_a_run_with_what_to_declare(worlds: Worlds, registry: RegistryServer) -> None:
    id = registry.register(f"{worlds.topic}-value", order())
    world = worlds.make(schema="n string", more=declare(registry.address))
    worlds.broker.produce(worlds.topic, 0, [encode(order(), {"n": 1}, id)])
    world.give("0")
    with pytest.raises(
        ConfigError, match=r"does not fit the reader's schema: n is of another type in it\. Declare int"
    ):
        world.run("0")
    assert not world.tree.parked()


def test_a_topic_of_avro_is_tried(worlds: Worlds, registry: RegistryServer) -> None:
    id = registry.register(f"{worlds.topic}-value", order())
    world = worlds.make(more=declare(registry.address))
    worlds.broker.produce(worlds.topic, 0, [*(encode(order(), {"n": n}, id) for n in range(9)), b"bad"])
    tried = try_file(world.folder / "pipelines" / "p.py", str(world.endpoint))
    assert [row["n"] for row in tried.seen["rows"]] == [*range(9)][: len(tried.seen["rows"])]
    assert tried.code == 0
