"""Every pair of a type in a Parquet file and a declared type: Spark reads each accepted pair with equal values."""

import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rota.dataplane.files import parquet
from rota.dataplane.spark import session
from tests.dataplane.parquet_bytes import SHAPES, write
from tests.dataplane.parquet_kinds import list_kinds
from tests.dataplane.parquet_values import compare

KINDS = list_kinds()
DECIMALS = (
    (2, 0), (4, 0), (4, 2), (5, 2), (5, 5), (9, 0), (9, 2), (10, 0), (12, 2), (12, 4), (18, 0), (18, 4), (19, 0), (19, 2),
    (20, 0), (20, 4), (38, 0), (38, 10), (38, 18), (38, 38),
)  # fmt: skip
DECLARED = (
    "boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz", "void", "variant", "interval day to second", "interval year to month", "time(6)", "char(5)",
    *(f"decimal({digits},{scale})" for digits, scale in DECIMALS),
)  # fmt: skip
DDL = {"byte": "tinyint", "short": "smallint", "long": "bigint"}
SAID = re.compile(r"(?:^has |, )(\w+)(?:\.\w+)* as ")


def nest(shape: str, declared: str) -> Any:
    """Return a declared type within a shape, as Spark's JSON."""
    match shape:
        case "struct":
            return {"type": "struct", "fields": [{"name": "x", "type": declared}]}
        case "array":
            return {"type": "array", "elementType": declared}
        case "map":
            return {"type": "map", "keyType": declared, "valueType": declared}
    return declared


def spell(shape: str, declared: str) -> str:
    """Return the same as DDL."""
    kind = DDL.get(declared, declared)
    return {"flat": kind, "struct": f"struct<x: {kind}>", "array": f"array<{kind}>", "map": f"map<{kind}, {kind}>"}[
        shape
    ]


@cache
def list_accepted() -> tuple[tuple[str, str, str], ...]:
    """Return shape, kind and declared type of the accepted pairs."""
    return tuple(find_accepted())


def find_accepted() -> Iterator[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            file = Path(folder) / f"{shape}.parquet"
            file.write_bytes(write({name: (shape, leaf) for name, leaf in KINDS.items()}, False))
            for declared in DECLARED:
                fields = [{"name": name, "type": nest(shape, declared)} for name in KINDS]
                refused = SAID.findall(parquet.explain_misfit(file, {"type": "struct", "fields": fields}, False))
                assert set(refused) <= KINDS.keys()
                yield from ((shape, name, declared) for name in KINDS if name not in refused)


@pytest.mark.parametrize("by_dictionary", [False, True], ids=["plain", "by dictionary"])
@pytest.mark.parametrize("vectorized", ["true", "false"], ids=["vectorized", "row by row"])
def test_what_is_not_refused_is_read_with_equal_values(
    by_dictionary: bool, vectorized: str, tmp_path: Path, endpoint: str
) -> None:
    spark: SparkSession = session.open_session(endpoint)
    accepted = [
        (shape, kind, declared)
        for shape, kind, declared in list_accepted()
        if not (by_dictionary and kind == "boolean")  # Parquet has no dictionary for these
        and not (vectorized == "false" and kind == "UUID")  # Spark's slower reader refuses it with an error
    ]
    pairs = {f"c{n}": one for n, one in enumerate(accepted)}
    file = tmp_path / "all.parquet"
    file.write_bytes(write({name: (shape, KINDS[kind]) for name, (shape, kind, _) in pairs.items()}, by_dictionary))
    try:
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
        schema = ", ".join(f"{name} {spell(shape, declared)}" for name, (shape, _, declared) in pairs.items())
        found = spark.read.schema(schema).parquet(str(file)).toArrow()
    finally:
        spark.stop()
    wanted = pq.read_table(file)
    differ = {
        pair: (compare(found[name], False), compare(wanted[name], pair[1] == "int96"))
        for name, pair in pairs.items()
        if compare(found[name], False) != compare(wanted[name], pair[1] == "int96")
    }
    assert not differ
    assert len(pairs) > 500
