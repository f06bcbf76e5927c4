"""Messages of a queue as records, without a broker: the same as lines of a landed file."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rota.dataplane.rabbitmq import frames
from rota.run.consume import CommittedBatch
from tests.dataplane.conftest import log
from tests.dataplane.world import World

DOUBLED = {"escape": '"'}


@pytest.mark.parametrize(
    ("options", "guarded", "read"),
    [
        (DOUBLED, True, ["a\0b", '\0"x']),
        (DOUBLED, False, ["ab", '"x']),
        ({"quote": ""}, True, ['"a\0b"', '"\0""x"']),
    ],
)
def test_a_nul_of_a_message_is_read(
    options: dict[str, str],
    guarded: bool,
    read: list[str],
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's parser dropped it where the quote is its own escape, or empty."""
    if not guarded:
        monkeypatch.setattr(frames, "keep_nuls", dict)
    frames.stage(tmp_path, "p:0", [(0, b'"a\0b"'), (1, b'"\0""x"')], "csv")
    found = frames.read_staged(spark, tmp_path, "word string", "csv", options)
    assert [row["word"] for row in found.orderBy("_offset").select("word").collect()] == read


def test_deep_values_are_judged_as_in_a_file_and_stop_nobody(world: World, spark: SparkSession) -> None:
    """Spark reads a thousand levels; where Python raised at as many, the partition of a bad one was parked."""
    lines = [f'{{"n": {d}, "word": {"[" * d}[1],[2]{"]" * d}}}' for d in (100, 950, 1500, 20_000)] + ["[" * 1500]
    world.write("pipeline = Pipeline(source=source(), table=delta({table!r}), max_bad_ratio=1)")
    world.land("a", "f", lines)
    world.give("a")
    (event,) = world.run("a")
    assert isinstance(event, CommittedBatch), event
    good = sorted(row["n"] for row in log(world.table / "main").rows())
    assert good == [100, 950]
    reasons = {row["_reason"] for row in log(world.table / "quarantine").rows()}
    assert reasons == {"no JSON: nested too deep"}
    frames.stage(world.folder / "staged", "p:0", enumerate(line.encode() for line in lines), "json")
    read = frames.read_staged(spark, world.folder / "staged", "n int, word string", "json", {})
    assert sorted(row["n"] for row in read.where("_corrupt is null").collect()) == good
    assert [row["_offset"] for row in read.where("_corrupt is not null").orderBy("_offset").collect()] == [2, 3, 4]
