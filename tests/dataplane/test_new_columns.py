"""A column of a landed Parquet file that is not declared: ignored, or refused, as the declaration states."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.dataplane.files import parquet
from rota.errors import ConfigError
from rota.people.retry import retry
from rota.pipeline import files
from rota.run.consume import CommittedBatch, ParkedPartition
from tests.dataplane.conftest import log
from tests.dataplane.world import World

TEXT = "pipeline = Pipeline(source=source(format='parquet', schema={schema!r}, {more}), table=delta({table!r}))\n"


def declare(world: World, schema: str, more: str = "") -> None:
    world.write(TEXT.replace("{schema!r}", repr(schema)).replace("{more}", more))


def land(world: World) -> Path:
    path = world.folder / "land" / "a" / "0.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array([1, 2], pa.int32()), "Price": [1.5, 2.5]}), path)
    return path


@pytest.mark.parametrize("refuse", [True, False], ids=["refused", "ignored"])
def test_its_values_are_in_no_table_only_where_that_was_said(world: World, refuse: bool) -> None:
    declare(world, "n int", "new_columns='refuse'" if refuse else "")
    land(world)
    world.give("a")
    (event,) = world.run("a")
    if not refuse:
        assert isinstance(event, CommittedBatch)
        assert {name for row in log(world.table / "main").rows() for name in row} == {"_partition", "_offset", "n"}
        return
    assert isinstance(event, ParkedPartition)
    assert event.reason.startswith(
        "a/0.parquet has Price, and the schema of files(...) has not. Declare what you want of it, or say "
        "new_columns='ignore'. Then: rota retry p:a"
    )
    declare(world, "n int, price double", "new_columns='refuse'")
    retry(world.tree, "p:a", world.ports)
    world.until_idle("a")
    assert [row["price"] for row in log(world.table / "main").rows()] == [1.5, 2.5]


def test_a_field_of_a_part_is_a_new_column_too(tmp_path: Path) -> None:
    rows = pa.array([[{"a": 1, "b": [("k", {"c": 1, "d": 2})]}]], pa.list_(pa.struct([
        ("a", pa.int64()), ("b", pa.map_(pa.string(), pa.struct([("c", pa.int64()), ("d", pa.int64())]))),
    ])))  # fmt: skip
    pq.write_table(pa.table({"l": rows}), tmp_path / "0.parquet")

    def explain(inner: list[str], outer: list[str]) -> str:
        parts = {"type": "struct", "fields": [{"name": name, "type": "long"} for name in inner]}
        there = {"a": "long", "b": {"type": "map", "keyType": "string", "valueType": parts}}
        struct = {"type": "struct", "fields": [{"name": name, "type": there[name.lower()]} for name in outer]}
        fields = [{"name": "L", "type": {"type": "array", "elementType": struct}}]
        return parquet.explain_misfit(tmp_path / "0.parquet", {"type": "struct", "fields": fields}, False, "refuse")

    assert explain(["c", "D"], ["A", "b"]) == ""
    assert explain(["c"], ["a", "b"]).startswith("has l.element.b.value.d, and the schema of files(...) has not")
    assert explain(["c", "d"], ["b"]).startswith("has l.element.a, and")


@pytest.mark.parametrize(("policy", "format"), [("drop", "parquet"), ("refuse", "json"), ("add", "csv")])
def test_a_policy_that_no_run_could_keep_is_refused(policy: str, format: str) -> None:
    with pytest.raises(ConfigError, match="new_columns="):
        files("/x", format=format, schema="n int", new_columns=policy)  # type: ignore[arg-type]


def test_a_csv_header_with_another_column_stops_its_partition(world: World) -> None:
    declared = "source(format='csv', schema='n int', options={'header': 'true'})"
    world.write(f"pipeline = Pipeline(source={declared}, table=delta({{table!r}}))\n")
    world.land("a", "0", ["n,price", "1,2.5"], ".csv")
    world.give("a")
    (event,) = world.run("a")
    assert isinstance(event, ParkedPartition)
    assert "CSV header" in event.reason
