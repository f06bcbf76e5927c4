"""Landed Avro files on real Spark: the table has what fastavro reads, or the partition has the reason."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from rota.dataplane.files import avro_container, avro_reading
from rota.dataplane.ports import ASSIGN, INSPECT
from rota.errors import ConfigError, EnvironmentFailed
from rota.run.consume import ParkedPartition
from tests.dataplane import avro_cases as cases
from tests.dataplane.avro_cases import Record, logical, pack, write_file
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.landing_folders import source
from tests.dataplane.world import World

PLAIN = "pipeline = Pipeline(source=source(format='avro', schema={schema!r}{more}), table=delta({{table!r}}))\n"


def declare(world: World, schema: str, more: str = "") -> None:
    world.write(PLAIN.format(schema=schema, more=more))


def consume(world: World, *keys: str) -> dict[str, str]:
    """The reasons of the partitions that stop."""
    world.give(*keys)
    events = world.until_idle(*keys)
    return {e.partition.removeprefix("p:"): e.reason for e in events if isinstance(e, ParkedPartition)}


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(made=cases.records(3), data=st.data())
def test_spark_returns_each_value_that_fastavro_reads(
    made: Record, data: st.DataObject, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind, folder = made.kind, tmp_path_factory.mktemp("avro")
    records = [data.draw(kind.values) for _ in range(3)]
    (folder / "land" / "a").mkdir(parents=True)
    plain = write_file(kind.schema, records, sync_interval=1)
    (folder / "land" / "a" / "0.avro").write_bytes(plain)
    fields = from_arrow_schema(pa.schema(list(kind.column)))
    schema = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in fields)
    landed = source(folder, format="avro", schema=schema)
    ends = landed.observe(("p:a",), ASSIGN).ends
    with landed.read(spark, {"p:a": (0, ends["p:a"])}, "x") as read:
        found = read.frame.drop("_partition", "_offset").toArrow()
        assert read.count is not None
        assert read.count() == found.num_rows == 3
    expected = [cases.show(one, kind.column) for one in fastavro.reader(io.BytesIO(plain))]
    assert found.cast(pa.schema(list(kind.column))).to_pylist() == expected


def test_files_of_each_codec_and_of_several_schemas_are_in_the_table(
    landed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is read by its own schema: fields in any order, a narrower type, and fields that are not declared. Several
    tasks read a file."""
    monkeypatch.setattr(avro_reading, "PIECE", 300)
    declare(landed, "id bigint, at timestamp, tags map<string, string>, of struct<member0 string, member1 int>")
    at, tags = logical("long", "timestamp-millis"), {"type": "map", "values": ["null", "string"]}
    schemas = [
        {"id": "long", "at": at, "tags": tags, "of": ["string", "int"]},
        {"more": {"type": "array", "items": "int"}, "of": ["string", "int"], "tags": tags, "at": ["null", at], "id": "int"},
    ]  # fmt: skip
    record = {"at": datetime(2026, 1, 2, tzinfo=UTC), "tags": {"a": None, "b": "c"}, "of": 7, "more": [1]}
    files = 0
    for codec in sorted(avro_container.UNPACK):
        for schema in schemas:
            records = [{**record, "id": 100 * files + n} for n in range(20)]
            landed.put(f"a/{files:02}.avro", pack(write_file(schema, records, sync_interval=100), codec))
            files += 1
    assert not consume(landed, "a")
    assert damage(landed.table / "main", {"p:a": dict.fromkeys(range(files), 20)}) == NO_DAMAGE
    rows = log(landed.table / "main").rows()
    assert all(row["id"] // 100 == row["_offset"] for row in rows)
    assert {str(row["at"]) for row in rows} == {"2026-01-02 00:00:00+00:00"}
    assert {str(row["tags"]) for row in rows} == {"[('a', None), ('b', 'c')]"}
    assert {str(row["of"]) for row in rows} == {"{'member0': None, 'member1': 7}"}


def make_unreadable() -> dict[str, tuple[bytes, str]]:
    """Files, and why each stops its partition."""
    good = write_file({"n": "int", "word": "string"}, [{"n": n, "word": "w"} for n in range(3)])
    change = "Change the schema of files(...), or give a reader's schema: options={'avroSchema': ...}. Then: rota retry"
    return {
        "half": (good[:-20], "ends within a block, at byte "),
        "lacking": (
            write_file({"n": "int", "words": "string"}, [{"n": 1, "words": "w"}]),
            f"has another schema than files(...): word is not in it. It has: n int, words string. {change}",
        ),
        "text": (good.replace(b"\x02w\x02", b"\x02\xe9\x02"), "does not decode behind record 0, in the block at byte "),
    }


def test_a_file_that_cannot_be_read_stops_its_partition_with_the_reason_and_no_other(landed: World) -> None:
    declare(landed, "n int, word string")
    unreadable = make_unreadable()
    good = write_file({"n": "int", "word": "string"}, [{"n": 1, "word": "w"}])
    head = write_file({"n": "int", "word": "string"}, [])
    for key, (data, _) in unreadable.items():
        landed.put(f"{key}/0.avro", good)
        landed.put(f"{key}/1.avro", data)
        landed.put(f"{key}/2.avro", good)
    for name, content in enumerate((good, head, good)):
        landed.put(f"good/{name}.avro", content)
    found = consume(landed, *unreadable, "good")
    assert found.keys() == unreadable.keys()
    for key, (_, said) in unreadable.items():
        assert found[key].startswith(f"{key}/1.avro {said}"), found[key]
        assert found[key].endswith(f"Then: rota retry p:{key}"), found[key]
        assert "\n" not in found[key]
    expected = {f"p:{key}": {0: 1} for key in unreadable} | {"p:good": {0: 1, 2: 1}}
    assert damage(landed.table / "main", expected) == NO_DAMAGE


def test_a_readers_schema_gives_defaults_new_names_and_wider_types(world: World) -> None:
    """By Avro's rules: a field that a file lacks has its default, and one that files had before needs no column."""
    reader = {"type": "record", "name": "Order", "fields": [
        {"name": "number", "type": "long", "aliases": ["n"]},
        {"name": "word", "type": ["null", "string"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"], "default": "b"}, "default": "a"},
    ]}  # fmt: skip
    declare(world, "number bigint, word string, kind string", f", options={{'avroSchema': {json.dumps(reader)!r}}}")
    new = {"type": "enum", "name": "Kind", "symbols": ["a", "c"]}
    for name, (schema, record) in enumerate([
        ({"n": "int", "gone": "string"}, {"n": 1, "gone": "x"}),
        ({"number": "long", "word": "string", "kind": new}, {"number": 2**40, "word": "w", "kind": "c"}),
    ]):  # fmt: skip
        world.put(f"a/{name}.avro", write_file(schema, [record]))
    assert not consume(world, "a")
    rows = [(row["_offset"], row["number"], row["word"], row["kind"]) for row in log(world.table / "main").rows()]
    assert sorted(rows) == [(0, 1, None, "a"), (1, 2**40, "w", "b")]


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        ("{", r"Option avroSchema of files\(.*\) is no schema \(JSONDecodeError"),
        ('"int"', "has no field n. Give it a field for each column"),
        ('{"type": "record", "name": "R", "fields": [{"name": "m", "type": "int"}]}', "has no field n"),
    ],
)
def test_a_wrong_readers_schema_is_reported_before_a_run(reader: str, said: str, world: World) -> None:
    declare(world, "n int", f", options={{'avroSchema': {reader!r}}}")
    world.put("a/0.avro", b"")
    with pytest.raises(ConfigError, match=said):
        world.ports.source.observe((), INSPECT)


def test_a_readers_schema_that_the_columns_do_not_fit_ends_the_run_and_parks_nothing(world: World) -> None:
    reader = '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}'
    declare(world, "n int", f", options={{'avroSchema': {reader!r}}}")
    world.put("a/0.avro", write_file({"n": "int"}, [{"n": 1}]))
    with pytest.raises(
        ConfigError, match=r"does not fit option avroSchema: n is of another type in it. Declare bigint"
    ):
        consume(world, "a")
    assert not world.tree.parked()


def test_a_task_that_returns_fewer_records_than_the_blocks_state_commits_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's own count is the guard: without it, a task that leaves a block out loses its records."""
    declare(world, "n int")
    world.put("a/0.avro", write_file({"n": "int"}, [{"n": n} for n in range(9)], sync_interval=1))
    real = avro_container.make_reader

    def make_reader(open_files: Any, shares: Any, kinds: Any, reader: Any) -> Any:
        read = real(open_files, shares, kinds, reader)

        def read_avro(numbers: Any) -> Any:
            for batch in read(numbers):
                yield batch.slice(1)

        return read_avro

    monkeypatch.setattr(avro_container, "make_reader", make_reader)
    with pytest.raises(EnvironmentFailed, match="9 records to read, 8 that were written or found bad"):
        consume(world, "a")
    assert not log(world.table / "main").said("commit")
    monkeypatch.setattr(avro_reading, "count_records", lambda *_: None)
    with monkeypatch.context() as patch:
        patch.setattr(avro_reading, "explain_misfit", lambda *_: "")
        assert not consume(world, "a")
    assert len(log(world.table / "main").rows()) == 8
