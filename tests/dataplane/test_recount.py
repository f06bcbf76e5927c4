"""Parquet files of which Spark returns other rows than the footer states: the partition stops, and a reason names the file.

Law: no run fails because of such a file, and other partitions and the good files before it are consumed.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rota.dataplane.files import recount
from rota.errors import EnvironmentFailed
from tests.dataplane.conftest import log
from tests.dataplane.parquet_bytes import Leaf, write
from tests.dataplane.world import World

ROWS = 5
SIZE, DATA_PAGE, DICTIONARY_PAGE = 7, 9, 11  # fields of ColumnMetaData; give Spark the middle of a row group
LIES = {
    "large": {SIZE: 1 << 40},
    "negative": {SIZE: -1_000_000},
    "far": {DATA_PAGE: 1 << 40},
    "before": {DICTIONARY_PAGE: -1_000_000},
}
PLAIN = "pipeline = Pipeline(source=source(format='parquet', schema='n int'), table=delta({table!r}))\n"
FILTERS = PLAIN.replace("table=", "transform=lambda df: df.where('n >= 0'), table=")


def make_file(lies: dict[int, int]) -> bytes:
    leaf = Leaf("INT32", [n.to_bytes(4, "little") for n in range(ROWS)], "INT_32")
    return write({"n": ("flat", leaf)}, False, lies)


def consume(world: World, *keys: str) -> dict[str, str]:
    world.give(*keys)
    world.until_idle(*keys)
    return {p.removeprefix("p:"): one.record.reason for p, one in world.tree.parked().items()}


def test_each_such_file_stops_its_partition_and_no_other(landed: World) -> None:
    landed.write(PLAIN)
    lying = {"a": LIES["large"], "b": LIES["before"]}
    landed.put("a/0.parquet", make_file({}))
    for key, lies in {**lying, "good": {}}.items():
        landed.put(f"{key}/1.parquet", make_file(lies))
    found = consume(landed, *lying, "good")
    assert found.keys() == lying.keys()
    for key, reason in found.items():
        assert reason.startswith(f"{key}/1.parquet states {ROWS} rows in its footer, and Spark reads 0 of it."), reason
    assert len(log(landed.table / "main").rows()) == ROWS * 2


def test_spark_leaves_rows_of_each_such_file_out(tmp_path: Path, spark: SparkSession) -> None:
    for name, lies in LIES.items():
        (tmp_path / f"{name}.parquet").write_bytes(make_file(lies))
    (tmp_path / "good.parquet").write_bytes(make_file({}))
    assert spark.read.schema("n int").parquet(str(tmp_path)).count() == ROWS


@pytest.mark.parametrize("text", [PLAIN, FILTERS], ids=["plain", "with a filter"])
def test_such_a_file_alone_stops_its_partition(text: str, world: World) -> None:
    world.write(text)
    world.put("a/0.parquet", make_file(LIES["large"]))
    assert "a/0.parquet states" in consume(world, "a")["a"]


def test_the_ablation_fails_each_run_and_names_no_partition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recount, "explain_miscounts", lambda *_: {})
    world.write(PLAIN)
    world.put("a/0.parquet", make_file(LIES["large"]))
    for _ in range(2):
        with pytest.raises(EnvironmentFailed, match="The counts of a job differ"):
            consume(world, "a")
    assert not world.tree.parked()
