"""Filters that Spark pushes down to Parquet leave out no matching row, whether the file's type differs from the declared
one or its statistics have truncated texts."""

import math
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from rota.dataplane.files import parquet
from rota.dataplane.spark import session
from tests.tier import choose

NAN = math.nan
LONG = "a" * 70
DAYS = (-719162, -1, 0, 20_000, 2932896)
TIMES = (-62_135_596_800_000, -1, 0, 1_700_000_000_123, 253_402_300_799_999)  # ms
WRITTEN: dict[str, pa.Array] = {  # one or two values per row group, each with its own statistics
    **{
        str(kind): pa.array((-100, -1, 0, 1, 100, 127), kind)
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    },
    **{str(kind): pa.array((0, 1, 100, 127, 200, 255), kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32())},
    "float": pa.array((0.5, -0.0, 0.0, NAN, math.inf, -math.inf), pa.float32()),
    "double": pa.array((0.1, -0.0, 0.0, NAN, math.inf, -math.inf), pa.float64()),
    **{
        f"decimal {digits} {scale}": pa.array(
            [Decimal(n).scaleb(-scale) for n in (-99, -1, 0, 1, 50, 99)], pa.decimal128(digits, scale)
        )
        for digits, scale in ((4, 2), (9, 0), (9, 2), (18, 4), (20, 0), (38, 10))
    },
    "string": pa.array(("", "a", LONG, LONG + "b", "\U0010ffff" * 20, "\ue000ß"), pa.string()),
    "binary": pa.array((b"", b"a", b"\xff" * 70, b"\xff" * 71, b"\x80", b"\x7f"), pa.binary()),
    "boolean": pa.array((True, False, True, True, False, False), pa.bool_()),
    "date": pa.array((*DAYS, 1), pa.int32()).cast(pa.date32()),
    **{
        f"timestamp {unit} {zone}": pa.array(
            [n * (1 if unit == "ms" else 1000) for n in (*TIMES, 1)], pa.timestamp(unit, zone)
        )
        for unit in ("ms", "us")
        for zone in (None, "UTC")
    },
}
DECLARED = (
    "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "boolean", "date", "timestamp",
    "timestamp_ntz", "decimal(4,2)", "decimal(9,2)", "decimal(12,4)", "decimal(20,0)", "decimal(38,10)", "decimal(38,18)",
)  # fmt: skip
SIGNS = ("=", "<")
TOGETHER = 60  # scans of a query


def find_accepted(spark: SparkSession, folder: Path) -> list[tuple[str, str]]:
    """Return the accepted pairs of a written and a declared type."""
    found = []
    for declared in DECLARED:
        kind: Any = spark.createDataFrame([], f"c {declared}").schema.jsonValue()["fields"][0]["type"]
        for name, rows in WRITTEN.items():
            pq.write_table(pa.table({"c": rows}), folder / "one.parquet", store_decimal_as_integer=as_integer(name))
            fields = {"type": "struct", "fields": [{"name": "c", "type": kind}]}
            if not parquet.explain_misfit(folder / "one.parquet", fields, False):
                found.append((name, declared))
    return found


def as_integer(name: str) -> bool:
    return not name.endswith("10")


def test_a_pushed_filter_leaves_out_no_row_that_fits(tmp_path: Path, endpoint: str) -> None:
    """Each accepted pair, for each of its values: a filter keeps the rows for which the comparison is true."""
    from pyspark.sql import functions as F  # noqa: N812

    spark = session.open_session(endpoint)
    try:
        accepted = find_accepted(spark, tmp_path)
        pairs = choose(accepted, 3)
        written = [WRITTEN[name] for name, _ in pairs]
        columns = {f"c{n}": pa.concat_arrays([rows, pa.nulls(1, rows.type)]) for n, rows in enumerate(written)}
        path = tmp_path / "all.parquet"
        table = pa.table({**columns, "n": range(7)})
        pq.write_table(table, path, row_group_size=1, use_dictionary=False, store_decimal_as_integer=True)
        schema = ", ".join(f"c{n} {declared}" for n, (_, declared) in enumerate(pairs))
        frame = spark.read.schema(f"{schema}, n bigint").parquet(str(path))
        shown = frame.select(*(spell_out(f"c{n}", declared) for n, (_, declared) in enumerate(pairs))).collect()
        asked = [
            f"c{n} {sign} {spell(value, declared)}"
            for n, (_, declared) in enumerate(pairs)
            for value in dict.fromkeys(row[n] for row in shown if row[n] is not None)
            for sign in SIGNS
        ]
        wanted, found = set[tuple[int, int]](), set[tuple[int, int]]()
        for row in frame.select("n", *(F.expr(one).alias(f"e{i}") for i, one in enumerate(asked))).collect():
            wanted |= {(i, row["n"]) for i in range(len(asked)) if row[f"e{i}"]}
        for first in range(0, len(asked), TOGETHER):
            some = [
                frame.where(one).select(F.lit(i).alias("i"), "n")
                for i, one in enumerate(asked[first : first + TOGETHER], first)
            ]
            found |= {(i, n) for i, n in reduce(DataFrame.unionAll, some).collect()}
    finally:
        spark.stop()
    assert {asked[i] + str(pairs[int(asked[i].split()[0][1:])]): n for i, n in wanted ^ found} == {}
    assert len(accepted) > 40
    assert len(wanted) > 15 * len(pairs)


def spell_out(column: str, declared: str) -> Any:
    """Return the values as texts for `spell`."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.hex(column) if declared in ("binary", "string") else F.col(column).cast("string")


def spell(value: str, declared: str) -> str:
    """Return the value as a literal that Spark folds."""
    if declared in ("binary", "string"):
        return f"CAST(unhex('{value}') AS {declared})"
    return f"CAST('{value}' AS {declared})"
