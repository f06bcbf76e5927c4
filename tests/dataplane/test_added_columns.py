"""A column of a landed Parquet file that is not declared, with `new_columns="add"`: its values are in the table, or its
partition stops with the reason."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rota.dataplane.files import parquet
from rota.dataplane.files.added import Added
from rota.errors import BadTransform
from rota.local.bucket import BucketServer
from rota.run.replay import ReplayedRange, replay
from tests.dataplane.conftest import log
from tests.dataplane.delta_tables import batch, ledger
from tests.dataplane.parquet_bytes import SHAPES, write
from tests.dataplane.parquet_kinds import list_kinds
from tests.dataplane.parquet_landing import ParquetWorld
from tests.dataplane.parquet_values import compare

DOUBLE = pa.array([1.5, 2.5])


@pytest.fixture
def disk(tmp_path: Path, endpoint: str, spark: SparkSession) -> ParquetWorld:
    return ParquetWorld.open(tmp_path, endpoint, spark)


@pytest.fixture(params=["disk", "bucket"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path, endpoint: str, spark: SparkSession) -> ParquetWorld:
    """Files land, and the table lies, on a disk or in a bucket."""
    buckets: BucketServer | None = None
    if request.param == "bucket":
        request.getfixturevalue("bucket")  # for the environment
        buckets = request.getfixturevalue("bucket_server")
    return ParquetWorld.open(tmp_path, endpoint, spark, buckets)


KINDS = list_kinds()


def read_shape(shape: str, folder: Path) -> dict[str, parquet.Node]:
    """The columns of a file with each kind in this shape."""
    file = folder / f"{shape}.parquet"
    file.write_bytes(write({name: (shape, leaf) for name, leaf in KINDS.items()}, False))
    footer = parquet.read_footer(file)
    assert footer
    return dict(footer.whole.parts)


def find_types(folder: Path) -> dict[tuple[str, str], object]:
    """Return shape and kind of each column that Parquet can represent, with the type."""
    found = {}
    for shape in SHAPES:
        for kind, node in read_shape(shape, folder).items():
            why = Added(frozenset(), {}).take(
                "a/0.parquet", parquet.Footer(8, parquet.Node("", "struct", ((kind, node),)))
            )
            if why:
                assert why.startswith(f"has {kind} as ")
                assert "No type of Spark has " in why
            else:
                found[shape, kind] = parquet.find_type(node)
    return found


def test_each_type_of_parquet_gets_into_the_table_with_equal_values_or_is_refused(
    anywhere: ParquetWorld, tmp_path: Path
) -> None:
    """Every physical and logical type, alone and nested, judged by the comparison of the pairs. A file without the column
    has null."""
    types = find_types(tmp_path)
    assert {shape for shape, _ in types} == set(SHAPES)
    assert {kind for _, kind in types} == {kind for _, kind in types if kind in KINDS}
    assert len(types) > 150
    pairs = {f"c{n}": one for n, one in enumerate(types)}
    numbers = KINDS["int32"].values
    data = write(
        {"n": ("flat", KINDS["int32"]), **{c: (shape, KINDS[kind]) for c, (shape, kind) in pairs.items()}}, False
    )
    landed = tmp_path / "landed.parquet"
    landed.write_bytes(data)
    anywhere.put("a", pa.table({"n": numbers}), data)
    anywhere.land("b")
    assert anywhere.consume() == {}
    files = {f.parts[-2]: pq.ParquetFile(f).read() for f in log(anywhere.main).files}
    got, none = (next(t for t in files.values() if t["_partition"][0].as_py() == p) for p in ("p:a", "p:b"))
    wanted = pq.read_table(landed)
    assert compare(got["n"], False) == compare(wanted["n"], False)
    differ = {
        pair: (compare(got[name], False), compare(wanted[name], pair[1] == "int96"))
        for name, pair in pairs.items()
        if compare(got[name], False) != compare(wanted[name], pair[1] == "int96")
    }
    assert not differ
    assert all(none[name].null_count == len(none) for name in pairs)


# Name in small letters -> arrays that may land under it. The first type that lands decides.
POOL = {
    "price": (DOUBLE, DOUBLE.cast(pa.float32()), pa.array(["cheap", None]), pa.nulls(2)),
    "count": (pa.array([1, 2**40]), pa.array([3, None], pa.int32()), pa.array([True, False])),
    "day": (pa.array([date(2026, 1, 2), None]), pa.array([date(2027, 1, 2), date(1, 1, 1)])),
    "cost": (pa.array([Decimal("1.50"), None]), pa.array([Decimal("2.25"), Decimal("9.00")])),
    "a.b`c": (pa.array(["x", "y"]), pa.array([b"x", b"y"])),
    "tags": (pa.array([["x"], None]), pa.array([["y", None], []]), pa.array([[1], [2]])),
}


@pytest.mark.parametrize(("anywhere", "seed"), [("disk", 0), ("disk", 1), ("bucket", 2)], indirect=["anywhere"])
def test_whatever_lands_each_value_is_in_the_table_or_its_partition_stops_with_the_reason(
    seed: int, anywhere: ParquetWorld
) -> None:
    draw = Random(seed)
    for _ in range(3):
        for _ in range(8):
            names = draw.sample(sorted(POOL), draw.randint(0, 3))
            spelt = {draw.choice((name, name.upper())): name for name in names}
            weights = (8, 1, 1, 1)
            arrays = {s: draw.choices(POOL[name], weights[: len(POOL[name])])[0] for s, name in spelt.items()}
            anywhere.land(draw.choice("abc"), **arrays)
        reasons = anywhere.consume()
        positions = anywhere.world.ports.main.read_positions(tuple(f"p:{key}" for key in anywhere.landed))
        ends = {key: positions[f"p:{key}"].offset or 0 for key in anywhere.landed}
        assert anywhere.count_damage(ends) == {}
        for key, files in anywhere.landed.items():
            assert (ends[key] < len(files)) == (key in reasons)
            if key in reasons:
                assert reasons[key].startswith(f"{key}/{ends[key]:02}.parquet has "), reasons
                assert " brought it as " in reasons[key], reasons
                assert "\n" not in reasons[key]


@pytest.mark.parametrize("gone", ["", "what its files bring", "the look at what others brought"])
def test_without_each_guard_values_are_lost_or_others(
    gone: str, disk: ParquetWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    if gone == "what its files bring":
        monkeypatch.setattr(Added, "take", lambda *_: "")
    elif gone:
        monkeypatch.setattr(parquet, "explain_misfit", lambda *_: "")
    disk.land("a", price=DOUBLE)
    disk.consume()
    disk.land("a", price=pa.array([Decimal("1.50"), None]))
    assert bool(disk.consume()) == (not gone)
    damage = disk.count_damage({"a": 2 if gone else 1})
    assert (
        damage == {"": {}, "what its files bring": {"lost": 3}, "the look at what others brought": {"wrong": 1}}[gone]
    )


def test_a_column_is_null_of_files_that_lack_it_and_a_file_of_another_type_stops_its_partition(
    disk: ParquetWorld,
) -> None:
    disk.land("a", price=DOUBLE)
    disk.land("b")
    assert disk.consume() == {}
    disk.land("a")
    disk.land("a", PRICE=pa.array([3.5, None], pa.float32()))
    disk.land("b", price=pa.array(["cheap", "dear"]))
    said = disk.consume()
    assert said == {
        "b": "b/01.parquet has price as string, and a/00.parquet brought it as double. Land it with a type that fits, or "
        "under another name"
    }
    assert disk.count_damage({"a": 3, "b": 1}) == {}
    disk.declare("n int, price float")
    disk.land("c", price=DOUBLE.cast(pa.float32()))
    assert disk.consume()["c"].startswith("Column price is float and was double in the table. Cast it back")
    disk.declare("n int, price double")
    disk.land("d", price=DOUBLE)
    disk.land("d")
    said = disk.consume()
    assert said["d"].startswith("d/01.parquet has no column price, and the schema of files(...) has")
    assert disk.count_damage({"a": 3, "d": 1}) == {}
    disk.declare(new="ignore")
    disk.land("e")
    assert "dropped the column price, which the table has" in disk.consume()["e"]


def test_a_transform_sees_it_and_may_rename_it_and_a_replay_brings_what_was_ignored(disk: ParquetWorld) -> None:
    renamed = ", transform=lambda df: df.withColumnRenamed('price', 'cost').where('n > 0')"
    disk.declare(new="ignore", more=renamed)
    disk.land("a", price=DOUBLE)
    assert disk.consume() == {}
    disk.declare(more=renamed)
    world = disk.world
    assert [type(e) for e in replay(world.tree, world.ports, {"p:a": (0, 1)}, "again")] == [ReplayedRange]
    disk.land("a")
    assert disk.consume() == {}
    assert [row["cost"] for offset in (0, 1) for row in disk.read_rows("a", offset)] == [2.5, None]
    marks = {f["name"]: f["metadata"] for f in json.loads(world.ports.main.read_schema() or "")["fields"]}
    assert marks["cost"] == {"rota.added": "price", "rota.brought": "a/00.parquet"}
    assert not marks["n"]


STRUCT = pa.array([{"x": 1, "y": [{"z": 1}]}])


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (
            {"_Offset": DOUBLE[:1]},
            "has a column _Offset, which is called like one of rota's own. Land it under another name",
        ),
        (
            {"Price": DOUBLE[:1], "price": DOUBLE[:1]},
            "has Price and price, which are one column to Spark. Land them under other names",
        ),
        (
            {"s": pa.array([{"at": None}], pa.struct([("at", pa.time64("us"))]))},
            "has s as struct<at: time64[us]>. No type of Spark has the values of s.at: write the file with another type",
        ),
        (
            {"first": pa.array([{"x": 1, "y": [{"z": 1, "more": 2}]}])},
            "has first.y.element.more, and a/0.parquet brought first without. Land it as a column of its own",
        ),
        (
            {"first": pa.array([{"y": [{"z": 1}]}])},
            "has no first.x, and a/0.parquet brought first with it. Land it with all its fields",
        ),
        (
            {"declared": pa.array([{"x": 1, "y": 2}])},
            "has declared.y, and the schema of files(...) has not. Declare what you want of it, or say new_columns='ignore'",
        ),
        ({"nothing": pa.nulls(1), "FIRST": STRUCT}, ""),
    ],
)
def test_what_it_cannot_be_is_one_line(columns: dict[str, pa.Array], why: str, tmp_path: Path) -> None:
    part = pa.array([{"x": 1}])
    files = {"a/0.parquet": {"declared": part, "first": STRUCT}, "b/7.parquet": {"declared": part, **columns}}
    added, said = Added.of("declared struct<x: bigint>", None), []
    for path, some in files.items():
        file = tmp_path / path
        file.parent.mkdir()
        pq.write_table(pa.table(some), file)
        said.append(added.take(path, parquet.read_footer(file)))
    declared = {"type": "struct", "fields": [{"name": "x", "type": "long"}]}
    fields = [{"name": "declared", "type": declared}, *added.chosen.values()]
    misfit = parquet.explain_misfit(tmp_path / "b/7.parquet", {"type": "struct", "fields": fields}, False, "add")
    assert [one for one in (*said, misfit) if one] == ([why] if why else [])


@pytest.mark.parametrize(
    ("column", "kind", "said"),
    [
        ("price", "double", ""),
        ("price", "string", "Column price is string and was double in the table"),
        ("Price", "double", "Column Price is price in the table"),
    ],
)
def test_of_two_runs_that_add_a_column_at_once_the_later_has_the_same_or_is_refused(
    column: str, kind: str, said: str, tmp_path: Path
) -> None:
    table = ledger(tmp_path)
    first, second = table.claim({"p": 1, "q": 1}, {"p": 0, "q": 0}), table.claim({"q": 1}, {"q": 0})
    table.commit(first, batch(table, table.claim({"p": 1}, {}), price="double"))
    if said:
        with pytest.raises(BadTransform, match=said):
            table.commit(second, batch(table, second, **{column: kind}))
    else:
        table.commit(second, batch(table, second, **{column: kind}))
    fields = json.loads(table.read_schema() or "")["fields"]
    assert [field["name"] for field in fields] == ["_partition", "_offset", "price"]
