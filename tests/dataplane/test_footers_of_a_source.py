"""What a landed file has in its footer, or in its first bytes, against what is declared and what Spark would do with it."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.dataplane.files import parquet, texts
from rota.run.consume import CommittedBatch, ParkedPartition
from tests.dataplane import parquet_bytes
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.parquet_bytes import Leaf
from tests.dataplane.world import World


def write(path: Path, *columns: tuple[str, pa.Array]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)
    return path


@pytest.mark.parametrize(
    ("kind", "fit", "misfit"),
    [
        (pa.int8(), "byte short integer long double decimal(10,0)", "float decimal(3,0)"),
        (pa.uint8(), "short integer long double", "byte decimal(10,0)"),
        (pa.int16(), "short integer long double", "byte"),
        (pa.uint16(), "integer long double", "byte short"),
        (pa.int32(), "integer long double decimal(12,2)", "byte short float date timestamp decimal(9,0)"),
        (pa.uint32(), "long", "byte short integer double decimal(10,0)"),
        (pa.int64(), "long decimal(20,0)", "integer double timestamp decimal(19,0)"),
        (pa.uint64(), "decimal(20,0)", "long decimal(38,0)"),
        (pa.float32(), "float double", "integer decimal(38,10)"),
        (pa.float16(), "", "float double binary"),
        (pa.date32(), "date timestamp_ntz", "short integer long timestamp"),
        (pa.timestamp("us"), "timestamp timestamp_ntz", "integer long date"),
        (pa.timestamp("ns"), "", "timestamp timestamp_ntz long"),
        (pa.decimal128(9, 2), "decimal(9,2) decimal(12,4)", "integer long double decimal(9,0) decimal(9,3)"),
        (pa.string(), "string binary", "integer date"),
        (pa.binary(16), "binary", "string"),
    ],
)
def test_a_value_has_an_equal_one_in_the_declared_type(
    kind: pa.DataType, fit: str, misfit: str, tmp_path: Path
) -> None:
    nested = pa.array([[{"m": [("k", None)]}]], pa.list_(pa.struct([("M", pa.map_(pa.string(), kind))])))
    file = write(tmp_path / "a.parquet", ("N", pa.nulls(1, kind)), ("l", nested), ("more", pa.array([1])))

    def explain(wanted: str) -> str:
        parts = {"type": "map", "keyType": "string", "valueType": wanted}
        struct = {"type": "struct", "fields": [{"name": "m", "type": parts}]}
        fields = [{"name": "n", "type": wanted}, {"name": "l", "type": {"type": "array", "elementType": struct}}]
        return parquet.explain_misfit(file, {"type": "struct", "fields": fields}, False)

    shown = pq.read_schema(file).field("N").type  # Parquet has no seconds
    assert not any(explain(wanted) for wanted in fit.split())
    for wanted in misfit.split():
        assert explain(wanted).startswith(
            f"has n as {shown}, not {wanted}, l.element.m.value as {shown}, not {wanted}: "
        )


CHANGE = "Change the schema of files(...)"
NO_TYPE = "No type of Spark has the values of n: write the file with another type"


@pytest.mark.parametrize(
    ("kind", "wanted", "advice"),
    [
        (pa.int32(), "string", "Declare n as integer in the schema of files(...)"),
        (pa.string(), "integer", "Declare n as string in the schema of files(...)"),
        (pa.decimal128(9, 2), "double", "Declare n as decimal(9,2) in the schema of files(...)"),
        (pa.list_(pa.int32()), "string", CHANGE),
        (pa.string(), "array", "Declare n as string in the schema of files(...)"),
        (pa.map_(pa.string(), pa.string()), "struct", CHANGE),
        (pa.struct([("x", pa.int32())]), "array", CHANGE),
        (pa.timestamp("ns"), "timestamp", parquet.NANOSECONDS),
        (pa.time64("us"), "long", NO_TYPE),
        (pa.null(), "string", NO_TYPE),
    ],
)
def test_a_column_of_another_sort_is_reported_if_there_is_a_row(
    kind: pa.DataType, wanted: str, advice: str, tmp_path: Path
) -> None:
    inner = {"array": {"elementType": "string"}, "struct": {"fields": []}}
    declared = {"type": wanted, **inner[wanted]} if wanted in inner else wanted
    wanted_whole = {"type": "struct", "fields": [{"name": "n", "type": declared}]}
    file = write(tmp_path / "a.parquet", ("n", pa.nulls(1, kind)))
    found = pq.read_schema(file).field("n").type  # Parquet names the element of a list
    assert parquet.explain_misfit(file, wanted_whole, False) == (
        f"has n as {found}, not {wanted}: Spark would read other values, or none. {advice}"
    )
    write(file, ("n", pa.nulls(0, kind)))
    misfit = parquet.explain_misfit(file, wanted_whole, False)
    assert bool(misfit) == pa.types.is_nested(kind), "Spark refuses a group as something else without a row, too"


def test_a_column_that_the_transform_drops_is_of_the_declared_sort(world: World) -> None:
    """Spark reads nothing of it and so refuses nothing: a file of other columns was consumed."""
    world.write(
        "pipeline = Pipeline(source=source(format='parquet', schema='n int, more array<string>'), "
        "table=delta({table!r}), transform=lambda df: df.drop('more'))\n"
    )
    world.give("a", "b")
    numbers, texts = pa.array([[1]]), pa.array([["x"]])
    for key, more in (("a", numbers), ("b", texts)):
        write(world.folder / f"land/{key}/0.parquet", ("n", pa.array([7], pa.int32())), ("more", more))
    events = {e.partition: e for e in world.run("a", "b") if isinstance(e, CommittedBatch | ParkedPartition)}
    said = events["p:a"]
    assert isinstance(said, ParkedPartition)
    assert said.reason == (
        "a/0.parquet has more.element as int64, not string: Spark would read other values, or none. Declare more.element as "
        "long in the schema of files(...). Then: rota retry p:a"
    )
    assert isinstance(events["p:b"], CommittedBatch)


def test_a_footer_that_cannot_be_read_is_reported_and_what_the_disk_does_not_give_is_not(tmp_path: Path) -> None:
    """A file that is away, as a mount that came off, is for its reader: its partition is not at fault."""
    wanted = {"type": "struct", "fields": [{"name": "n", "type": "integer"}]}
    whole = write(tmp_path / "a.parquet", ("n", pa.array([7], pa.int32()))).read_bytes()
    size = int.from_bytes(whole[-8:-4], "little")
    hurt = whole[: -8 - size] + b"\xff" * size + whole[-8:]  # of the right length, and of no meaning
    for name, data in (("half", whole[:-10]), ("hurt", hurt), ("text", b"no Parquet at all")):
        (tmp_path / name).write_bytes(data)
        assert parquet.explain_misfit(tmp_path / name, wanted, False).startswith("is no Parquet ("), name
    (tmp_path / "empty").touch()
    assert parquet.explain_misfit(tmp_path / "empty", wanted, False).startswith("has no bytes, which is no Parquet")
    for name in ("a.parquet", "gone"):
        assert parquet.explain_misfit(tmp_path / name, wanted, False) == "", name


def test_a_file_without_its_end_is_reported_where_the_transform_reads_nothing(world: World) -> None:
    """Spark opens no file for a filter that nothing passes: half a file was consumed as one without rows."""
    world.write(
        "pipeline = Pipeline(source=source(format='parquet', schema='n int'), table=delta({table!r}), "
        "transform=lambda df: df.where('1 = 0'))\n"
    )
    world.give("a", "b")
    for key in ("a", "b"):
        write(world.folder / f"land/{key}/0.parquet", ("n", pa.array([7], pa.int32())))
    half = world.folder / "land/a/0.parquet"
    half.write_bytes(half.read_bytes()[:-10])
    events = {e.partition: e for e in world.run("a", "b") if isinstance(e, CommittedBatch | ParkedPartition)}
    said = events["p:a"]
    assert isinstance(said, ParkedPartition)
    assert said.reason.startswith("a/0.parquet is no Parquet (")
    assert said.reason.endswith("). Bring a whole file. Then: rota retry p:a")
    assert isinstance(events["p:b"], CommittedBatch)


READ_AS_OTHERS = {
    "n": (pa.array([70_000], pa.int32()), "short", 4464),
    "money": (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), "double", 150.0),
    "count": (pa.array([4_294_967_295], pa.uint32()), "double", -1.0),
    "day": (pa.array([20_260], pa.int32()), "date", date(2025, 6, 21)),
}


@pytest.mark.parametrize("guarded", [True, False])
def test_a_number_that_spark_would_read_as_another_is_not_read(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        monkeypatch.setattr(parquet, "explain_misfit", lambda *_: "")
    columns = ", ".join(f"{name} {declared}" for name, (_, declared, _) in READ_AS_OTHERS.items())
    world.write(f"pipeline = Pipeline(source=source(format='parquet', schema='{columns}'), table=delta({{table!r}}))\n")
    world.give("a")
    path = world.folder / "land/a/0.parquet"
    path.parent.mkdir(parents=True)
    columns_of_file = {name: values for name, (values, _, _) in READ_AS_OTHERS.items()}
    pq.write_table(pa.table(columns_of_file), path, store_decimal_as_integer=True)  # as Spark writes it
    (said,) = (e for e in world.run("a") if isinstance(e, CommittedBatch | ParkedPartition))
    if guarded:
        assert isinstance(said, ParkedPartition)
        assert said.reason == (
            "a/0.parquet has n as int32, not short, money as decimal128(9, 2), not double, count as uint32, not double, "
            "day as int32, not date: Spark would read other values, or none. Declare n as integer, money as decimal(9,2), "
            "count as long, day as integer in the schema of files(...). Then: rota retry p:a"
        )
        assert not log(world.table / "main").rows()
    else:
        (row,) = log(world.table / "main").rows()
        assert {name: row[name] for name in READ_AS_OTHERS} == {n: read for n, (_, _, read) in READ_AS_OTHERS.items()}


@pytest.mark.parametrize("wanted", [False, True])
def test_a_field_that_a_parquet_file_has_not_is_reported_unless_null_is_wanted(world: World, wanted: bool) -> None:
    merged = ", options={'mergeSchema': 'true'}" if wanted else ""
    world.write(
        f"pipeline = Pipeline(source=source(format='parquet', schema='s struct<x: int, y: int>'{merged}), "
        f"table=delta({{table!r}}))\n"
    )
    world.give("a")
    write(world.folder / "land/a/0.parquet", ("s", pa.array([{"X": 1}], pa.struct([("X", pa.int32())]))))
    (event,) = world.run("a")
    if wanted:
        assert [r["s"] for r in log(world.table / "main").rows()] == [{"x": 1, "y": None}]
    else:
        assert isinstance(event, ParkedPartition)
        assert event.reason.startswith("a/0.parquet has no column s.y, and the schema of files(...) has. ")


HADOOPS = (9).to_bytes(4, "big") + (3).to_bytes(4, "big") + b"abc"  # a block of three bytes


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.json.snappy", b'{"n": 1}\n', "is not snappy as Hadoop writes it"),
        ("a.json.snappy", b"\xff\x06\x00\x00sNaPpY and more", "is not snappy"),
        ("a.csv.LZ4", b"\x04\x22\x4d\x18\x64\x40\xa7 and more", "is not LZ4"),
        ("a.lz4", b"abc", "is not lz4"),
        ("a.lz4", HADOOPS, ""),
        ("a.lz4", b"", ""),
        ("a.gz", b"no gzip", ""),
        ("snappy", b"none", ""),
    ],
)
def test_what_spark_would_make_room_for_unseen_is_refused(name: str, data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    why = texts.explain_misnamed(tmp_path / name)
    assert said in why if said else not why


def test_a_file_that_another_program_compressed_stops_its_own_partition_and_no_spark(world: World) -> None:
    """Spark died of it, for every pipeline of the worker, and parked no partition: so there is no run without the guard."""
    world.give("a", "b")
    world.rows("a", "0", 2)
    world.rows("b", "0", 2)
    (world.folder / "land/a/1.json.snappy").write_bytes(b'{"n": 1}\n')
    (parked,) = (e for e in world.until_idle("a", "b") if isinstance(e, ParkedPartition))
    assert parked.reason.startswith("a/1.json.snappy is not snappy as Hadoop writes it")
    assert parked.reason.endswith("Then: rota retry p:a")
    assert damage(world.table / "main", {"p:a": {0: 2}, "p:b": {0: 2}}) == NO_DAMAGE


def test_a_footer_that_states_other_rows_than_its_groups_is_refused(tmp_path: Path) -> None:
    """Thrift writes the rows of a file as two bytes before those of its groups."""
    file = write(tmp_path / "a.parquet", ("n", pa.array(range(6), pa.int32())))
    whole, wanted = file.read_bytes(), {"type": "struct", "fields": [{"name": "n", "type": "integer"}]}
    for at in range(len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), len(whole) - 8):
        file.write_bytes(whole[:at] + b"\0" + whole[at + 1 :] if whole[at - 1 : at + 1] == b"\x16\x0c" else whole)
        try:
            rows = pq.read_metadata(file).num_rows
        except pa.ArrowException:
            continue
        if rows == 0:
            break
    assert parquet.explain_misfit(file, wanted, False) == (
        "states 0 rows in its footer, and its row groups have 6. Write the file again"
    )


@pytest.mark.parametrize(("number", "name"), [(17, "Geometry"), (18, "Geography")])
def test_a_refusal_names_the_logical_type_that_makes_bytes_another_thing(
    number: int, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(
        parquet_bytes.write({"g": ("flat", Leaf("BYTE_ARRAY", [b"\1\0\0\0g"], logical={number: {}}))}, False)
    )
    wanted = {"type": "struct", "fields": [{"name": "g", "type": "binary"}]}
    said = parquet.explain_misfit(file, wanted, False)
    assert f"has g as binary ({name}), not binary: " in said
    assert said.endswith("No type of Spark has the values of g: write the file with another type")


def test_a_header_that_differs_by_a_blank_shows_the_blank(world: World) -> None:
    world.write(
        "pipeline = Pipeline(source=source(format='csv', schema='id int, t int', options={'header': 'true'}), "
        "table=delta({table!r}))\n"
    )
    world.land("a", "0", ["id, t", "1,2"], ".csv")
    world.give("a")
    (said,) = (e for e in world.run("a") if isinstance(e, ParkedPartition))
    assert "Expected: 't' but found: ' t'" in said.reason
