"""What holds of files on a disk holds of objects in a bucket: each record once, under its own offset; bad ones set aside
with their line; what is overwritten or deleted on the way is noticed; a replay takes what is there now.
"""

import random
from collections import Counter

import pytest

from rota.dataplane.names import key
from rota.dataplane.ports import ASSIGN, INSPECT
from rota.dataplane.spark import plans, writing
from rota.run.consume import CommittedBatch, IdlePartition, ParkedPartition
from rota.run.replay import ReplayedRange, replay
from rota.stores import is_url
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.landing_folders import encode
from tests.dataplane.striking import strike_at
from tests.dataplane.world import World
from tests.dataplane.written import read_numbers

FOLDERS = ("k", "a b ü=%1")
FORMATS = ("json", "csv", "parquet", "avro")
NAMES = (
    "plain", "a b", "100%", "%41", "%20", "ü", "u\u0308", "a+b", "a#b", "a?b", "a&b=c", "日本", "a'b", 'a"b', "a;b,c", "a@b",
    "~a$b!", "a:b", "[x]", "{y}", "a*b", "a\\b", "<a>|^`", "\u00a0n\u3000", "😀",
)  # fmt: skip
TEXT = 'pipeline = Pipeline(source=source(format={format!r}, schema="n int"), table=delta({{table!r}}))\n'


@pytest.mark.parametrize("format", FORMATS)
def test_each_record_is_in_the_table_once_under_its_own_offset(format: str, landed: World) -> None:
    """Names of every kind, and random numbers of records, none too; in two runs, of which the second has late names."""
    landed.write(TEXT.format(format=format))
    draw, wanted = random.Random(format), dict[str, list[int]]()
    keys = [key(folder) for folder in FOLDERS]
    landed.give(*keys)
    for late in (False, True):
        for folder in FOLDERS:
            for name in NAMES:
                path = f"{folder}/{'!' if late else ''}{name}/{name}.{format}"
                wanted[path] = [draw.randrange(10**9) for _ in range(draw.choice((0, 1, 5, 40)))]
                landed.put(path, encode(format, wanted[path]))
        events = landed.until_idle(*keys)
        assert {type(event) for event in events} == {CommittedBatch, IdlePartition}, events
    source = landed.ports.source
    found = {source.locate(p, offset): numbers for (p, offset), numbers in read_numbers(landed).items()}
    assert found == {path: Counter(numbers) for path, numbers in wanted.items() if numbers}
    ends = {p: 2 * len(NAMES) for p in map(landed.pipeline.partition, keys)}
    expected = {p: {o: len(wanted[source.locate(p, o)]) for o in range(end)} for p, end in ends.items()}
    assert damage(landed.table / "main", expected) == NO_DAMAGE


@pytest.mark.parametrize("format", ["json", "csv"])
def test_a_bad_record_is_set_aside_with_its_file_and_line(format: str, landed: World) -> None:
    landed.write(TEXT.format(format=format).replace("delta({table!r})", "delta({table!r}), max_bad_ratio=0.5"))
    landed.give("a")
    landed.put(f"a/0.{format}", encode(format, range(10)))
    landed.put(f"a/1 ü.{format}", encode(format, range(3)) + b"x\n" + encode(format, range(3)))
    landed.until_idle("a")
    assert damage(landed.table / "main", {"p:a": {0: 10, 1: 6}}) == NO_DAMAGE
    (aside,) = log(landed.table / "quarantine").rows()
    assert (aside["_file"], aside["_position"], aside["_raw"], aside["_offset"]) == (f"a/1 ü.{format}", 4, "x", 1)


def test_a_line_of_two_records_is_one_bad_record_and_names_the_file(landed: World) -> None:
    landed.give("a", "b")
    landed.rows("b", "0", 2)
    landed.land("a", "0", ['{"n": 0}', '{"n": 1}{"n": 2}'])
    events = landed.run("a", "b")
    (parked,) = (event for event in events if isinstance(event, ParkedPartition))
    assert parked.partition == "p:a"
    assert "such as line 2 of a/0.json (offset 0), no JSON: Extra data" in parked.reason
    assert damage(landed.table / "main", {"p:b": {0: 2}}) == NO_DAMAGE


@pytest.mark.parametrize("moment", ["before Spark reads", "after Spark read"])
@pytest.mark.parametrize("what", ["overwritten", "deleted"])
@pytest.mark.parametrize("format", FORMATS)
def test_what_is_overwritten_or_deleted_on_the_way_is_not_committed(
    format: str, what: str, moment: str, landed: World
) -> None:
    landed.write(TEXT.format(format=format))
    landed.give("a", "b")
    for folder in "ab":
        landed.put(f"{folder}/0.{format}", encode(format, range(7)))

    def change() -> None:
        if what == "deleted":
            landed.delete(f"a/0.{format}")
        else:
            landed.put(f"a/0.{format}", encode(format, range(100, 107)))

    with strike_at(writing, "write", change, before=moment.startswith("before")):
        for _ in range(2):
            landed.run("a", "b")
    assert read_numbers(landed) == {("p:b", 0): Counter(range(7))}
    reason = landed.tree.parked()["p:a"].record.reason
    assert f"a/0.{format} (offset 0) {'vanished' if what == 'deleted' else 'changed'}" in reason


@pytest.mark.parametrize("format", FORMATS)
def test_a_replay_takes_what_is_there_now(format: str, landed: World) -> None:
    landed.write(TEXT.format(format=format))
    landed.give("a")
    for name in "01":
        landed.put(f"a/{name}.{format}", encode(format, range(5)))
    landed.until_idle("a")
    landed.put(f"a/0.{format}", encode(format, range(20, 23)))
    (done,) = replay(landed.tree, landed.ports, {"p:a": (0, 1)}, "again")
    assert isinstance(done, ReplayedRange), done
    assert read_numbers(landed) == {("p:a", 0): Counter(range(20, 23)), ("p:a", 1): Counter(range(5))}
    assert not landed.ports.source.find_broken({"p:a": (0, 2)}), "it is what the offset means from now on"


def test_what_hadoop_still_copies_waits_until_it_has_its_name(landed: World) -> None:
    """Spark reads nothing under the name that it has meanwhile."""
    landed.give("a")
    landed.rows("a", "0", 3)
    landed.put("a/1.json._COPYING_", encode("json", range(4)))
    landed.until_idle("a")
    assert damage(landed.table / "main", {"p:a": {0: 3}}) == NO_DAMAGE
    landed.delete("a/1.json._COPYING_")
    landed.put("a/1.json", encode("json", range(4)))
    landed.until_idle("a")
    assert damage(landed.table / "main", {"p:a": {0: 3, 1: 4}}) == NO_DAMAGE
    assert not landed.ports.source.observe((), INSPECT).ignored


def test_no_credential_is_in_a_plan(landed: World) -> None:
    landed.give("a")
    landed.rows("a", "0", 3)
    source = landed.ports.source
    ends = source.observe(("p:a",), ASSIGN).ends
    with source.read(landed.connect(landed.endpoint), {"p:a": (0, ends["p:a"])}, "x") as records:  # type: ignore[attr-defined]
        frame = records.identify(records.frame)
        said = plans.explain(frame)
        assert sorted(frame.columns) == ["_offset", "_partition", "n", "word"]
    assert "secret" not in said.lower()
    assert is_url(landed.landing) == ("s3a:" in said)
