"""The columns of a batch must fit the table, and its rows its ranges, according to the footers of its files."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rota.dataplane import names
from rota.errors import BadTransform, EnvironmentFailed
from rota.ledger import schema
from rota.ledger.replacing import replace_rows
from tests.dataplane.delta_tables import again, batch, ledger, spark_schema
from tests.dataplane.written import read_footers


def test_new_columns_are_added_before_the_commit(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    for extra in ({}, {"a": "integer"}, {"a": "integer", "b": "timestamp"}):
        claimed = table.claim({"p": 1}, {"p": 0})
        table.commit(claimed, batch(table, claimed, **extra))
    assert [f.name for f in DeltaTable(Path(table.location)).schema().fields] == ["_partition", "_offset", "a", "b"]


TYPES = ("byte", "short", "integer", "long", "float", "double", "boolean", "string", "binary", "date", "timestamp",
         "timestamp_ntz", "decimal(38,10)")  # fmt: skip
IN_A_MAP: dict[str, Any] = {"type": "map", "keyType": "string", "valueType": "timestamp_ntz", "valueContainsNull": True}


@pytest.mark.parametrize("declared", TYPES)
def test_a_column_holds_each_type_alone_and_within_others(tmp_path: Path, declared: str) -> None:
    array = {"type": "array", "elementType": declared, "containsNull": True}
    whole: dict[str, Any] = {
        "alone": declared,
        "array": array,
        "value": IN_A_MAP | {"valueType": declared},
        "key": IN_A_MAP | {"keyType": declared, "valueType": "string"},
        "struct": {"type": "struct", "fields": [{"name": "x", "type": declared, "nullable": True, "metadata": {}}]},
        "deep": array | {"elementType": IN_A_MAP | {"valueType": array}},
    }
    for name, kind in whole.items():
        table = ledger(tmp_path / name)
        claimed = table.claim({"p": 1}, {"p": 0})
        table.commit(claimed, batch(table, claimed, a=kind))
        replace_rows(table, again(table, 0, 1, a=kind, b=kind))
        assert [f.name for f in DeltaTable(Path(table.location)).schema().fields] == ["_partition", "_offset", "a", "b"]


TWICE = json.dumps({"type": "struct", "fields": 2 * json.loads(spark_schema(a="long"))["fields"]})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (spark_schema(a="string"), "Column a is string and was long"),
        (spark_schema(), "dropped the column a"),
        (spark_schema(A="long"), "Column A is a in the table. Give it that name"),
        (spark_schema(a="long", A="long"), "several columns a. Drop or rename"),
        (TWICE, "several columns _offset, _partition, a. Drop or rename"),
        (spark_schema(a="long", i="interval day to second"), "cannot hold"),
        (json.dumps({"type": "struct", "fields": []}), "dropped the column _partition"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(found: str, said: str) -> None:
    with pytest.raises(BadTransform, match=said):
        schema.check_columns(found, spark_schema(a="long"))


def test_nullability_does_not_matter() -> None:
    array = {"type": "array", "elementType": "long", "containsNull": False}
    schema.check_columns(spark_schema(a=array), spark_schema(a={**array, "containsNull": True}))


def test_a_foreign_partition_or_offset_is_seen_in_the_footers(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    one = batch(table, table.claim({"p": 1}, {"p": 0}))
    with pytest.raises(BadTransform, match="which this batch does not have"):
        read_footers(Path(table.location), one.attempt, {"q": (0, 2)})
    with pytest.raises(BadTransform, match="offsets outside"):
        read_footers(Path(table.location), one.attempt, {"p": (0, 1)})
    with pytest.raises(BadTransform, match="offsets outside"):
        read_footers(Path(table.location), one.attempt, {"p": (1, 2)})


def test_two_partitions_in_one_file_are_refused_whatever_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "one" / names.split("p:b")
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"_partition": ["p:b", "p:c"], "_offset": [0, 0]}), folder / "0.parquet")
    with pytest.raises(EnvironmentFailed, match="holds rows of another partition"):
        read_footers(tmp_path, "one", {"p:b": (0, 1), "p:c": (0, 1)})
