"""What rota writes of hostile values, as DuckDB, Polars, pandas, pyarrow and Spark read it."""

import io
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.dataplane.conftest import log
from tests.dataplane.world import World

TEXTS = [
    "",
    "\0",
    "\ufeffx",
    "😀",
    "e\u0301",
    "\u202eabc",
    "a\r\nb\u2028",
    "\U0010ffff",
    "'\"\\`{}[],;",
    "x" * 70_000,
    None,
]
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
COLUMNS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "text": ("string", pa.string(), TEXTS),
    "a `b`.c, \"d\" 'é'": ("string", pa.string(), TEXTS),
    "bytes": ("binary", pa.binary(), [None if one is None else b"\xff\0" + one.encode() for one in TEXTS]),
    "large": ("bigint", pa.int64(), [-(2**63), 2**63 - 1, None]),
    "tiny": ("tinyint", pa.int8(), [-128, 127, None]),
    "double": ("double", pa.float64(), [float("inf"), float("-inf"), -0.0, 5e-324, None]),
    "amount": ("decimal(38,10)", pa.decimal128(38, 10), [Decimal("9" * 28 + "." + "9" * 10), Decimal("-1E-10"), None]),
    "day": ("date", pa.date32(), [date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31), None]),
    "at": ("timestamp", pa.timestamp("us", "UTC"), [datetime(1, 1, 1, tzinfo=UTC), LAST, None]),
    "local": ("timestamp_ntz", pa.timestamp("us"), [datetime(1, 1, 1), LAST.replace(tzinfo=None), None]),
    "list": ("array<string>", pa.list_(pa.string()), [[one] for one in TEXTS] + [[], None]),
    "struct": ("struct<x:string>", pa.struct({"x": pa.string()}), [{"x": one} for one in TEXTS]),
}
ROWS = max(len(values) for _, _, values in COLUMNS.values())


def list_readers(spark: SparkSession) -> dict[str, Callable[[list[str]], pa.Table]]:
    return {
        "pyarrow": lambda files: pa.concat_tables(pq.ParquetFile(file).read() for file in files),
        "DuckDB": lambda files: duckdb.read_parquet(files).to_arrow_table(),
        "Polars": lambda files: pl.read_parquet(files).to_arrow(),
        "pandas": lambda files: pa.table(pd.read_parquet(files[0], dtype_backend="pyarrow", partitioning=None)),
        "Spark": lambda files: spark.read.parquet(*files).toArrow(),
    }


def test_every_reader_reads_every_value(world: World, spark: SparkSession) -> None:
    given = {
        name: values * (ROWS // len(values)) + values[: ROWS % len(values)] for name, (_, _, values) in COLUMNS.items()
    }
    rows = pa.table({name: pa.array(given[name], kind) for name, (_, kind, _) in COLUMNS.items()})
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    world.put("a/0.parquet", sink.getvalue())
    schema = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, (kind, _, _) in COLUMNS.items())
    world.write(f"pipeline = Pipeline(source=source(format='parquet', schema={schema!r}), table=delta({{table!r}}))\n")
    world.give("a")
    world.until_idle("a")
    assert not world.tree.parked()
    (file,) = log(world.table / "main").files
    for reader, read in list_readers(spark).items():
        found = read([str(file)])
        for name, values in given.items():
            assert found[name].to_pylist() == values, (reader, name)
