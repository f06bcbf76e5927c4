"""A line of JSON that holds more than one value stops its partition: Spark reads the first, and the rest would vanish."""

import random
from typing import Any

import pytest
from pyspark.sql import DataFrame

from rota.dataplane import names
from rota.dataplane.files import texts
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.formats import lines
from rota.people.retry import retry
from rota.run.consume import CommittedBatch, ParkedPartition
from rota.run.replay import RefusedReplay, replay
from tests.dataplane.conftest import log
from tests.dataplane.json_lines import ASIDE, JOINED, SINGLE
from tests.dataplane.landing_folders import open_files
from tests.dataplane.world import PLAIN, World


def found(world: World, *text: str) -> list[str]:
    """Which of these lines are found, as a file of them is read."""
    world.land("a", "0", text)
    assert world.spark
    frame = world.spark.read.text(str(world.folder / "land" / "a"))
    source = open_files(world.pipeline)
    return [row.value for row in lines.find_joined(frame, source.declared.schema, source.options).collect()]


def test_only_a_line_with_more_than_one_value_is_found(world: World) -> None:
    assert found(world, *JOINED, *SINGLE, *ASIDE) == list(JOINED)


def test_what_is_not_found_is_one_record_or_in_quarantine(world: World) -> None:
    """Spark's own verdict: nothing of these lines is lost."""
    world.write(PLAIN.replace("table=", "max_bad_ratio=1.0, table="))
    world.give("a")
    world.land("a", "0", (*SINGLE, *ASIDE))
    (event,) = world.run("a")
    assert isinstance(event, CommittedBatch), event
    assert {row["_raw"] for row in log(world.table / "quarantine").rows()} == set(ASIDE)


def test_comments_are_not_values_where_the_reader_takes_them(world: World) -> None:
    world.write(PLAIN.replace("source()", 'source(options={"allowComments": "true", "lineSep": "\\n"})'))
    assert found(world, '{"n": 1} // }{', '{"n": 1} /* } */ {"n": 2}') == ['{"n": 1} /* } */ {"n": 2}']


def test_the_others_go_on_and_the_mended_file_is_read(world: World) -> None:
    """Files joined without a last newline: half of the records were in no table, and nobody knew."""
    world.give("a", "b")
    for name in "0134":
        world.rows("a", name, 2, int(name) * 10)
    world.land("a", "2", ['{"n": 20}', '{"n": 21}{"n": 22}'])
    world.rows("b", "0", 3)
    events = {e.partition: e for e in world.run("a", "b")}
    assert isinstance(events["p:a"], CommittedBatch)
    assert events["p:a"].end == 2
    assert isinstance(events["p:b"], CommittedBatch)
    assert events["p:b"].rows == 3
    (event,) = world.run("a")
    assert isinstance(event, ParkedPartition)
    assert event.retry_at is None
    assert event.reason == (
        "a/2.json (offset 2) has a line with something behind its first value, which Spark alone reads: "
        '{"n": 21}{"n": 22} ... '
        "Put each record on a line of its own, with nothing behind it, then: rota retry p:a"
    )
    world.land("a", "2", ['{"n": 20}', '{"n": 21}', '{"n": 22}'])
    assert retry(world.tree, "p:a", world.ports) == ("a/2.json",)
    world.until_idle("a")
    assert sorted(r["n"] for r in log(world.table / "main").rows() if r["_partition"] == "p:a") == [
        0, 1, 10, 11, 20, 21, 22, 30, 31, 40, 41,
    ]  # fmt: skip


def test_a_line_that_is_no_utf8_is_shown_all_the_same(world: World) -> None:
    """The differential found it: the error that nobody could decode stood in its place."""
    world.give("a")
    world.rows("a", "0", 0)
    (world.folder / "land/a/0.json").write_bytes(b'{"n": 0}\xed\xa0\x80\n')
    (event,) = world.run("a")
    assert isinstance(event, ParkedPartition)
    assert 'a line with something behind its first value, which Spark alone reads: {"n": 0}\ufffd' in event.reason


def test_a_replay_of_such_a_file_says_so(world: World) -> None:
    world.give("a")
    world.rows("a", "0", 2)
    world.until_idle("a")
    world.land("a", "0", ['{"n": 0}{"n": 1}'])
    (event,) = replay(world.tree, world.ports, {"p:a": (0, 1)}, "again")
    assert isinstance(event, RefusedReplay)
    assert event.reason.endswith("on a line of its own, with nothing behind it, then replay p:a")


def test_spark_is_asked_only_where_the_bytes_leave_it_in_doubt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scan of the text took half as long as the job. Of the files of a job it scans those in doubt."""
    asked: list[set[str]] = []
    real = lines.find_joined

    def find_joined(text: DataFrame, *more: Any) -> DataFrame:
        asked.append({row.value for row in text.collect()})
        return real(text, *more)

    monkeypatch.setattr(lines, "find_joined", find_joined)
    folder = "a [b] {c} *?"
    world.give("a", names.key(folder))
    world.rows("a", "0", 2)
    world.land("a", "1", ['{"n": 2, "more": [{"x": "}{"}, {"x": 2}]}', " {} ", '[{"n": 3}, {"n": 4}]'])
    (event,) = world.run("a")
    assert isinstance(event, CommittedBatch)
    assert (event.rows, asked) == (6, [])
    world.rows("a", "2", 2)
    world.land("a", "3", ['{"n": 5},'])
    world.rows(folder, "0", 2)
    world.land(folder, "1", ['{"n": 6},', "{}"])
    events = world.run("a", names.key(folder))
    assert sorted(e.rows for e in events if isinstance(e, CommittedBatch)) == [3, 4]
    assert asked == [{'{"n": 5},', '{"n": 6},', "{}"}]


def test_what_spark_finds_is_in_doubt_before(world: World) -> None:
    """Of random text, by Spark's own parser."""
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
    monkeypatch.setattr(FilesSource, "check_one_a_line", lambda *_: None)
    world.give("a")
    world.land("a", "0", ['{"n": 0}{"n": 1}'])
    world.until_idle("a")
    assert [r["n"] for r in log(world.table / "main").rows()] == [0]


def test_a_file_of_lines_that_is_read_as_one_value_says_so(world: World) -> None:
    """With `multiLine` Spark takes the first value of a file, and all other lines would vanish."""
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
