"""Messages of a queue as records, without a broker: they are read like lines of a landed file."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rota.dataplane.formats import options as declared_options
from rota.dataplane.formats import values
from rota.errors import ConfigError
from rota.rabbitmq import queues
from rota.run.consume import CommittedBatch
from tests.dataplane.conftest import log
from tests.dataplane.json_lines import ASIDE, JOINED, SINGLE
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
    """Spark's parser dropped it if the quote is its own escape, or empty."""
    if not guarded:
        monkeypatch.setattr(declared_options, "keep_nuls", dict)
    found = parse(spark, tmp_path, [b'"a\0b"', b'"\0""x"'], "csv", "word string", options)
    assert [row["word"] for row in found] == read


def test_deep_values_are_judged_as_in_a_file_and_stop_no_partition(world: World, spark: SparkSession) -> None:
    """Spark reads a thousand levels. Python raised at that depth, and the partition of a bad record was parked."""
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
    read = parse(spark, world.folder / "staged", [line.encode() for line in lines], "json")
    assert sorted(row["n"] for row in read if row["_corrupt"] is None) == good
    assert [row["_offset"] for row in read if row["_corrupt"] is not None] == [2, 3, 4]


def parse(
    spark: SparkSession,
    folder: Path,
    bodies: list[bytes],
    format: str,
    schema: str = "n int, word string",
    options: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    with values.read_staged(spark, folder / "stage", {"p:0": enumerate(bodies)}, schema, format, options) as frame:
        return frame.orderBy("_offset").collect()


def test_a_message_with_more_than_one_value_is_bad_and_a_single_one_is_as_in_a_file(
    tmp_path: Path, spark: SparkSession
) -> None:
    """No part of it is dropped: a parser takes the first value, and the rest would be in no table."""
    deep = [f'{{"n": 1, "more": {"[" * d}[1],[2]{"]" * d}}}{end}' for d in (1, 900) for end in ("", " {}", "x")]
    objects = [text for text in SINGLE if text.strip()[0] == "{"]
    texts = [*JOINED, *ASIDE, *objects, *deep]
    bad = [row["_corrupt"] is not None for row in parse(spark, tmp_path, [text.encode() for text in texts], "json")]
    expected = [True] * len(JOINED + ASIDE) + [False] * len(objects) + [False, True, True] * 2
    assert [text for text, one, other in zip(texts, bad, expected, strict=True) if one != other] == []


def test_a_message_of_csv_is_one_line(tmp_path: Path, spark: SparkSession) -> None:
    good, bad = [b"1,a", b"1,a\r\n", b"1,a\n", "1,\xa0".encode()], [b"", b" \t", b"1,a\n2,b", b"\n1,a", b"1", b"x,a"]
    rows = parse(spark, tmp_path, [*good, *bad], "csv")
    assert [row["_corrupt"] is None for row in rows] == [True] * len(good) + [False] * len(bad)


def test_bytes_are_the_one_column_as_they_are(tmp_path: Path, spark: SparkSession) -> None:
    bodies = [b"", b"\0\xff", b'{"n": 1}{"n": 2}']
    rows = parse(spark, tmp_path, bodies, "bytes", "body binary")
    assert [(bytes(row["body"]), row["_offset"]) for row in rows] == [(body, n) for n, body in enumerate(bodies)]
    assert set(rows[0].asDict()) == {"body", "_partition", "_offset"}
    for wrong in ("n int", "a binary, b binary", "binary"):
        with pytest.raises(ConfigError, match="Declare one column, 'value binary'"):
            queues("amqp://h", prefix="q", count=1, schema=wrong, format="bytes")


def test_a_column_of_a_message_is_not_called_like_one_of_ours() -> None:
    """For files it was refused; for queues it replaced ours."""
    with pytest.raises(ConfigError, match="Column _offset of queues"):
        queues("amqp://h", prefix="q", count=1, schema="n int, _offset long")
