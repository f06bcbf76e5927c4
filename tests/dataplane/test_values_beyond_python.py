"""Values that Python lacks, such as dates of the years 0 and 10000, are written and read. Text that is not UTF-8 is not."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from rota.run.consume import CommittedBatch, ParkedPartition
from tests.dataplane.conftest import log
from tests.dataplane.world import World
from tests.dataplane.written import read_footers

SCHEMA = "d date, t timestamp, z timestamp_ntz, b binary, e decimal(38,10), s string"
OF_JSON = f"""
def transform(df):
    from pyspark.sql import functions as F
    broken = df.withColumn('s', F.expr("if(s = 'broken', cast(x'ff' as string), s)"))
    return broken.withColumn('d', F.expr("if(s = 'after', date_add(d, 1), d)"))
pipeline = Pipeline(source=source(format="json", schema="{SCHEMA}"), table=delta({{table!r}}), transform=transform,
    max_bad_ratio=1.0)
"""
OF_PARQUET = f"""
def transform(df):
    return df.where("t is not null")
pipeline = Pipeline(source=source(format="parquet", schema="{SCHEMA}"), table=delta({{table!r}}), transform=transform,
    max_bad_ratio=1.0)
"""


def test_values_that_python_has_not_are_written_and_read(world: World) -> None:
    """Statistics of dates of the years 0 and 10000 are left out, in their file only. Text that is not UTF-8 parks."""
    world.write(OF_JSON)
    lines = {
        "plain": {"d": "2026-01-01", "s": "x"},
        "old": {"d": "0000-01-01", "t": "0000-12-31T00:00:00", "z": "0000-01-01T00:00:00"},
        "far": {"d": "10000-01-01", "t": "10000-01-01T00:00:00", "z": "10000-01-01T00:00:00"},
        "after": {"d": "9999-12-31", "s": "after"},
        "text": {"s": "broken"},
        "odd": {"s": "\x00", "b": "AQ==", "e": 1.5},
        "half": {"s": "\ud800"},
    }
    world.give(*lines)
    for key, record in lines.items():
        world.land(key, "0", [json.dumps(record)])
    events = world.run(*lines)
    assert {e.rows for e in events if isinstance(e, CommittedBatch)} == {1}, events
    (parked,) = (e for e in events if isinstance(e, ParkedPartition))
    assert (parked.partition, "column s has a text that is not UTF-8" in parked.reason) == ("p:text", True)
    assert len([e for e in events if isinstance(e, CommittedBatch)]) == len(lines) - 1
    table = DeltaTable(world.table / "main")
    found = QueryBuilder().register("t", table).execute("select count(*) n, count(distinct d) d from t").read_all()
    assert [column[0].as_py() for column in found.columns] == [len(lines) - 1, 3]
    said = {r["min._partition"]: r for r in pa.table(table.get_add_actions(flatten=True)).to_pylist()}
    assert str(said["p:plain"]["min.d"]) == "2026-01-01"
    assert said["p:far"]["min.d"] is said["p:old"]["min.d"] is None
    assert said["p:far"]["min._offset"] == 0


@pytest.mark.parametrize(
    "case", ["date 10000", "date -1", "timestamp", "timestamp_ntz", "no UTF-8", "decimal", "binary", "uint64"]
)
def test_a_footer_of_any_value(tmp_path: Path, case: str) -> None:
    bad = pa.StringArray.from_buffers(1, *pa.array([b"\xff\xfe"], pa.binary()).buffers()[1:])
    values = {
        "date 10000": pa.array([2932902], pa.date32()),
        "date -1": pa.array([-800000], pa.date32()),
        "timestamp": pa.array([2**62], pa.timestamp("us", tz="UTC")),
        "timestamp_ntz": pa.array([-(2**62)], pa.timestamp("us")),
        "no UTF-8": bad,
        "decimal": pa.array([None], pa.decimal128(38, 10)),
        "binary": pa.array([b"\xff\x00"], pa.binary()),
        "uint64": pa.array([2**64 - 1], pa.uint64()),
    }
    path = tmp_path / "data/attempt/703A61/x.parquet"
    path.parent.mkdir(parents=True)
    columns = {"_partition": ["p:a"], "_offset": pa.array([0], pa.int64()), "plain": [1], "x": values[case]}
    pq.write_table(pa.table(columns), path)
    (file,) = read_footers(tmp_path, "attempt", {"p:a": (0, 1)})
    low = json.loads(file.statistics)["minValues"]
    assert low["plain"] == 1
    assert set(low) - {"_partition", "_offset", "plain"} <= {"x"} if case == "uint64" else "x" not in low


def test_parquet_with_values_that_python_has_not(world: World) -> None:
    text = pa.StringArray.from_buffers(3, *pa.array([b"\xff\xfe", b"\x00", b"\xed\xa0\x80"], pa.binary()).buffers()[1:])
    columns = {
        "d": pa.array([2932902, -800000, None], pa.date32()),
        "t": pa.array([2**62, -(2**62), 0], pa.timestamp("us", tz="UTC")),
        "z": pa.array([-(2**62), 2**62, 0], pa.timestamp("us")),
        "b": pa.array([b"\xff", b"\x00", None], pa.binary()),
        "e": pa.array([10**27, -1, None], pa.decimal128(38, 10)),
        "s": pa.array(["\0", "\U0010ffff", None]),
    }
    world.write(OF_PARQUET)
    world.give("a", "b")
    for key, more in {"a": {}, "b": {"s": text}}.items():
        (world.folder / "land" / key).mkdir(parents=True)
        pq.write_table(pa.table({**columns, **more}), world.folder / f"land/{key}/0.parquet")
    events = world.run("a", "b")
    (parked,) = (e for e in events if isinstance(e, ParkedPartition))
    assert (parked.partition, "column s has a text that is not UTF-8" in parked.reason) == ("p:b", True)
    (event,) = (e for e in events if isinstance(e, CommittedBatch))
    assert (event.rows, event.bad_rows) == (3, 0)
    (file,) = log(world.table / "main").files
    found = pq.ParquetFile(file).read(["d", "t", "z", "b", "e"])
    assert found["d"].cast(pa.int32()).to_pylist() == [2932902, -800000, None]
    assert found["z"].cast(pa.int64()).to_pylist() == [-(2**62), 2**62, 0]
