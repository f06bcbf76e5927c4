"""Messages of a queue as records, without a broker: the same as lines of a landed file."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rota.dataplane.rabbitmq import frames

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
