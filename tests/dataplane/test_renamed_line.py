"""A renamed pipeline on real Spark: the same rows, replays, bad records, and the next files."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rota.people.rename import rename
from rota.run.consume import CommittedBatch, IdlePartition
from rota.run.replay import ReplayedRange, replay
from tests.dataplane.conftest import log
from tests.dataplane.counted_bad import make_counter
from tests.dataplane.renamed_tables import count_rows, tables
from tests.dataplane.world import World

TYPES = """
def transform(df):
    return df.selectExpr(
        "*", "cast(n as decimal(20,3)) d", "cast(word as binary) b", "map(word, n) m", "array(struct(n, word)) s", "null x",
        "timestamp_micros(n - 3) t", "to_timestamp_ntz('0001-01-01 00:00:00.000001') z", "date'1582-10-14' old",
        "cast('NaN' as double) f", "cast(n as tinyint) y",
    ).drop("x")
pipeline = Pipeline(source=source(max_files=1), table=delta({table!r}), transform=transform, max_bad_ratio=0.9)
"""


def test_the_whole_line_goes_on_under_the_new_name(tmp_path: Path, endpoint: str, spark: SparkSession) -> None:
    """Real batches of every type: after it the same rows, a replay of an old range, the bad record, and the next files."""
    world = World(tmp_path, endpoint, spark=spark, text=TYPES)
    world.rows("a", "0", 3)
    world.land("a", "1", ['{"n": 7, "word": "x"}', "bad"])
    world.give("a")
    world.until_idle("a")

    def seen() -> list[tuple[Any, ...]]:
        files = [str(world.table / "main" / f) for f in log(world.table / "main").files]
        frame = spark.read.parquet(*files).drop("_partition")
        return sorted((tuple(row) for row in frame.collect()), key=str)

    before = seen()
    world.call("q")
    rename(world.tree, "p", world.pipeline)
    assert str(seen()) == str(before)
    world.join("w2")
    world.give("a")
    assert [type(e) for e in world.run("a")] == [IdlePartition]
    (done,) = replay(world.tree, world.ports, {"q:a": (0, 2)}, "again")
    assert isinstance(done, ReplayedRange), done
    assert str(seen()) == str(before)
    (bad,) = (
        r
        for r in log(world.table / "quarantine").rows()
        if make_counter(tables(world).main.read_log())(r["_partition"], r["_offset"], r["_attempt"])
    )
    assert (bad["_partition"], bad["_raw"]) == ("q:a", "bad")
    world.rows("a", "2", 2)
    assert [type(e) for e in world.until_idle("a")] == [CommittedBatch, IdlePartition]
    assert count_rows(world) == {("q:a", 0): 3, ("q:a", 1): 1, ("q:a", 2): 2}
