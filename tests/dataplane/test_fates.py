"""A record has one fate, whatever source it comes from and whatever path reads it: the table `fates`."""

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from rota.dataplane.files import texts
from rota.dataplane.formats import exact, quoting, values
from rota.run.consume import CommittedBatch
from tests.dataplane import fates
from tests.dataplane.conftest import log
from tests.dataplane.fates import BAD, Fates, differ, read_fates
from tests.dataplane.world import World

CASES: dict[str, tuple[str, str, dict[str, str], Fates]] = {
    "json": ("json", fates.JSON_SCHEMA, {}, fates.JSON),
    "csv": ("csv", fates.CSV_SCHEMA, {}, fates.CSV),
    "tabs": ("csv", fates.CSV_SCHEMA, {"sep": "\t"}, fates.TABS),
    **{name: ("csv", fates.CSV_SCHEMA, {"encoding": name}, table) for name, table in fates.CODED.items()},
}


def plain(value: Any) -> Any:
    """Return a value of Spark as Arrow represents it."""
    if hasattr(value, "asDict"):
        return value.asDict()
    return list(value.items()) if isinstance(value, dict) else value


@pytest.mark.parametrize("case", CASES)
def test_the_fate_of_a_message(case: str, tmp_path: Path, spark: SparkSession) -> None:
    format, schema, options, table = CASES[case]
    with values.read_staged(spark, tmp_path / "stage", {"p:0": enumerate(table)}, schema, format, options) as frame:
        rows = frame.orderBy("_offset").withColumn("_corrupt", frame["_corrupt"].cast("binary")).collect()
    names = [name for name in rows[0].asDict() if not name.startswith("_")]
    found = [BAD if row["_corrupt"] is not None else tuple(plain(row[name]) for name in names) for row in rows]
    assert differ(table, dict(zip(table, found, strict=True))) == {}


@pytest.mark.parametrize("case", CASES)
def test_the_fate_of_a_line_of_a_file(case: str, world: World) -> None:
    """All in one job; then one job for the lines that Spark's reader reads, and one for the others."""
    format, schema, options, table = CASES[case]
    table = {**table, **fates.JSON_OF_A_FILE} if case == "json" else table
    form = f"format={format!r}, schema={schema!r}, options={options!r}"
    world.write(f"pipeline = Pipeline(source=source({form}), table=delta({{table!r}}), max_bad_ratio=1.0)\n")
    sure: dict[bytes, bool] = {}
    for number, raw in enumerate(table):
        world.put(f"all/{number:03}.{format}", raw + b"\n")
        path = world.folder / f"land/all/{number:03}.{format}"
        sure[raw] = texts.count_most([path], format, options) is not None
    assert case != "csv" or sum(sure.values()) > 8
    parts = {"all": list(table), "sure": [r for r in table if sure[r]], "doubt": [r for r in table if not sure[r]]}
    for key in ("sure", "doubt"):
        for number, raw in enumerate(parts[key]):
            world.put(f"{key}/{number:03}.{format}", raw + b"\n")
    for key, records in parts.items():
        if not records:
            continue
        world.give(key)
        events = world.run(key)
        assert all(isinstance(one, CommittedBatch) for one in events), events
        found = read_fates(world, key, records)
        assert differ({raw: table[raw] for raw in records}, found) == {}, key
    assert_readable(world.table / "main")


def assert_readable(table: Path) -> None:
    """Assert that every reader can read it: pyarrow checks the text of each column."""
    files = log(table).files
    ds.dataset([str(one) for one in files], format="parquet").to_table().validate(full=True)


DAMAGED = (b"1,Z\xfcrich", b'2,"a')


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the look at bytes and quotes"])
def test_what_the_look_at_bytes_and_quotes_keeps_out(
    guarded: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise Spark's reader makes rows by guessing."""
    if not guarded:
        monkeypatch.setattr(texts, "is_text", lambda _: True)
        monkeypatch.setattr(quoting.Dialect, "is_clean", lambda *_: True)
    form = f"format='csv', schema={fates.CSV_SCHEMA!r}"
    world.write(f"pipeline = Pipeline(source=source({form}), table=delta({{table!r}}), max_bad_ratio=1.0)\n")
    world.give("a")
    world.put("a/0.csv", b"\n".join(DAMAGED))
    (event,) = world.run("a")
    assert isinstance(event, CommittedBatch)
    found = sorted(str(row["s"]) for row in log(world.table / "main").rows())
    assert found == ([] if guarded else ["Z\ufffdrich", "a"])


@pytest.mark.parametrize(
    "guarded", [True, False], ids=["guarded", "without the values as written and the last of a name"]
)
def test_what_from_json_makes_of_numbers_and_of_names(
    guarded: bool, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr(exact, "restore_texts", lambda frame, *_: frame)
        monkeypatch.setattr(exact, "merge_names", lambda value, _: value)
    record = b'{"s": 1.10, "m": {"a": 1, "a": 2}}'
    schema = "s string, m map<string,int>"
    with values.read_staged(spark, tmp_path / "stage", {"p:0": [(0, record)]}, schema, "json", {}) as frame:
        (row,) = frame.selectExpr("s", "map_values(m) as m").collect()
    assert (row["s"], row["m"]) == (("1.10", [2]) if guarded else ("1.1", [1, 2]))
