"""A line of JSON that holds more than one value is a bad record: Spark reads the first, and the rest would vanish."""

import random

import pytest
from pyspark.sql import functions as F  # noqa: N812

from rota.dataplane.files import text_lines, texts
from rota.dataplane.formats import lines
from rota.run.consume import CommittedBatch, ParkedPartition
from tests.dataplane.conftest import log
from tests.dataplane.json_lines import ASIDE, JOINED, SINGLE
from tests.dataplane.landing_folders import open_files
from tests.dataplane.world import PLAIN, World


def found(world: World, *text: str) -> list[str]:
    """Return which of these lines are found when a file of them is read."""
    world.land("a", "0", text)
    assert world.spark
    frame = world.spark.read.text(str(world.folder / "land" / "a"))
    source = open_files(world.pipeline)
    return [row.value for row in lines.find_joined(frame, source.declared.schema, source.options).collect()]


def test_only_a_line_with_more_than_one_value_is_found(world: World) -> None:
    assert found(world, *JOINED, *SINGLE, *ASIDE) == list(JOINED)


def test_what_is_not_found_is_one_record_or_in_quarantine(world: World) -> None:
    """According to Spark, nothing of these lines is lost."""
    world.write(PLAIN.replace("table=", "max_bad_ratio=1.0, table="))
    world.give("a")
    world.land("a", "0", (*SINGLE, *ASIDE))
    (event,) = world.run("a")
    assert isinstance(event, CommittedBatch), event
    assert {row["_raw"] for row in log(world.table / "quarantine").rows()} == set(ASIDE)


def test_comments_are_not_values_where_the_reader_takes_them(world: World) -> None:
    world.write(PLAIN.replace("source()", 'source(options={"allowComments": "true", "lineSep": "\\n"})'))
    assert found(world, '{"n": 1} // }{', '{"n": 1} /* } */ {"n": 2}') == ['{"n": 1} /* } */ {"n": 2}']


def test_a_line_with_more_than_one_value_is_set_aside_and_the_others_go_on(world: World) -> None:
    """Files were joined without a newline between them: half of the records were in no table, without an error."""
    world.write(PLAIN.replace("table=", "max_bad_ratio=1.0, table="))
    world.give("a")
    world.land("a", "0", ['{"n": 20}', *JOINED, '[{"n": 21}, {"n": 22}]'])
    (event,) = world.run("a")
    assert isinstance(event, CommittedBatch), event
    assert sorted(str(r["n"]) for r in log(world.table / "main").rows()) == ["20", "21", "22"]
    rows = log(world.table / "quarantine").rows()
    assert {row["_raw"] for row in rows} == {line.removeprefix("\ufeff") for line in JOINED}
    assert all(row["_reason"] for row in rows)


def test_lines_are_parsed_as_values_only_where_their_bytes_leave_it_in_doubt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own reader needs two thirds of the time."""
    asked: list[object] = []
    real = text_lines.parse
    monkeypatch.setattr(text_lines, "parse", lambda frame, declared: (asked.append(frame), real(frame, declared))[1])
    world.give("a")
    world.rows("a", "0", 2)
    world.land("a", "1", ['{"n": 2, "more": [{"x": "}{"}, {"x": 2}]}', " {} "])
    assert [e.rows for e in world.run("a") if isinstance(e, CommittedBatch)] == [4]
    assert not asked
    world.land("a", "2", ['{"n": 5},'])
    assert [e.rows for e in world.run("a") if isinstance(e, CommittedBatch)] == [1]
    assert len(asked) == 1


def test_what_spark_finds_is_in_doubt_before(world: World) -> None:
    """For random text, compared with Spark's own parser."""
    draw, pieces = random.Random(9), (*JOINED, *SINGLE, *ASIDE, *"{}[],: '\"\\", "\t", "//", "\xe9")
    drawn = {"".join(draw.choices(pieces, k=draw.randint(1, 4))) for _ in range(400)}
    joined = found(world, *drawn)
    assert len(joined) > 100
    assert not [text for text in joined if texts.is_clean(text.encode())]


def test_bytes_that_are_believed_in_doubt_lose_the_second_value(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "is_clean", lambda *_: True)
    world.give("a")
    world.land("a", "0", ['{"n": 0}{"n": 1}'])
    world.until_idle("a")
    assert [r["n"] for r in log(world.table / "main").rows()] == [0]


def test_without_the_look_the_second_value_is_in_no_table(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "holds_one", lambda *_: F.lit(True))
    world.give("a")
    world.land("a", "0", ['{"n": 0}{"n": 1}'])
    world.until_idle("a")
    assert [r["n"] for r in log(world.table / "main").rows()] == [0]


def test_a_file_of_lines_that_is_read_as_one_value_is_reported(world: World) -> None:
    """With `multiLine` Spark reads the first value of a file, and all other lines would be lost."""
    world.write(PLAIN.replace("source()", 'source(options={"multiLine": "true"})'))
    world.give("a", "b", "c")
    world.land("a", "0", ['{"n": 1}', '{"n": 2}'])
    world.land("b", "0", ["[", '  {"n": 3, "word": "}{"},', '  {"n": 4}', "]"])
    world.land("c", "0", ["{", '  "n": 5,', '  "word": "w"', "}", ""])
    events = {e.partition: e for e in world.run("a", "b", "c")}
    assert isinstance(events["p:a"], ParkedPartition)
    assert events["p:a"].reason.startswith(
        "a/0.json (offset 0) has something behind its first value, which Spark alone reads: "
    )
    assert events["p:a"].reason.endswith(" ... Put each record into one list, then: rota retry p:a")
    assert {r["n"] for r in log(world.table / "main").rows()} == {3, 4, 5}
