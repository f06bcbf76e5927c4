"""Bad input of every kind: one clear line, nothing lost, no other partition delayed."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from rota.coordination.parking import unpark
from rota.dataplane.delta.tables import open_table
from rota.dataplane.spark import bisection, writing
from rota.people.skip import skip
from rota.run.consume import CommittedBatch, DroppedPartition, IdlePartition, ParkedPartition
from rota.run.work import find_work
from tests.dataplane import avro_cases
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.counted_bad import make_counter
from tests.dataplane.world import World

UDF = """
def checked(word):
    if word == "poison":
        raise ValueError("no antidote")
    return word.upper()
def transform(df):
    from pyspark.sql import functions as F
    return df.withColumn("word", F.udf(checked, "string")("word"))
pipeline = Pipeline(source=source(), table=delta({table!r}), transform=transform)
"""
CSV = """
pipeline = Pipeline(
    source=source(format="csv", schema="n int, word string", options={"header": "true"}),
    table=delta({table!r}),
    max_bad_ratio=0.34,
)
"""


def kinds(events: list[object]) -> dict[str, type]:
    return {str(e.partition): type(e) for e in events}  # type: ignore[attr-defined]


# --- the user's transform -------------------------------------------------------------------------------------------


def test_a_users_function_works_on_a_server_started_elsewhere_and_poison_parks_its_partition_only(world: World) -> None:
    world.write(UDF)
    world.give(*"abcd")
    for key in "abcd":
        world.rows(key, "0", 2)
    world.land("c", "0", ['{"n": 1, "word": "poison"}'])
    events = world.run(*"abcd")
    assert kinds(events) == {
        "p:a": CommittedBatch,
        "p:b": CommittedBatch,
        "p:c": ParkedPartition,
        "p:d": CommittedBatch,
    }
    (parked,) = (e for e in events if isinstance(e, ParkedPartition))
    assert parked.reason == (
        "ValueError: no antidote (p.py, line 8) in offset 0 (c/0.json). Mend the transform or the data, then: rota retry p:c"
    )
    assert parked.failures == 1
    assert parked.retry_at is not None
    assert {r["word"] for r in log(world.table / "main").rows()} == {"W0", "W1"}
    assert damage(world.table / "main", {f"p:{k}": {0: 2} for k in "abd"}) == NO_DAMAGE


def test_a_parked_partition_waits_longer_each_time_and_goes_on_when_it_works(world: World) -> None:
    now = [1000.0]
    world.server.clock = lambda: now[0]
    world.write(UDF)
    world.give("a")
    world.land("a", "0", ['{"n": 1, "word": "poison"}'])
    for failures, wait in ((1, 5.0), (2, 10.0), (3, 20.0)):
        (parked,) = world.run("a")
        assert (parked.failures, parked.retry_at) == (failures, now[0] + wait)
        assert not find_work(world.tree, world.pipeline, world.ports.source)
        (dropped,) = world.run("a")
        assert isinstance(dropped, DroppedPartition)
        assert dropped.reason.startswith("it is parked: ValueError")
        now[0] += wait
        assert [w.lags for w in find_work(world.tree, world.pipeline, world.ports.source)] == [{"p:a": (0, 1)}]
    world.write("pipeline = Pipeline(source=source(), table=delta({table!r}))\n")
    assert kinds(world.run("a")) == {"p:a": CommittedBatch}
    assert not world.tree.parked()


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, endpoint: str, spark: SparkSession) -> World:
    """Consume one file of each partition, and land another one."""
    world = World(tmp_path_factory.mktemp("begun"), endpoint, spark=spark)
    world.give("a", "b")
    world.rows("a", "0", 1)
    world.rows("b", "0", 1)
    world.run("a", "b")
    world.rows("a", "1", 1)
    world.rows("b", "1", 1)
    return world


WRITTEN = "lambda it: (rows.assign({}) for rows in it)"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("df.drop('_offset')", "dropped the column _offset"),
        ("df.withColumn('_partition', F.lit('p:z'))", "makes the column _partition anew"),
        (
            "df.mapInPandas(" + WRITTEN.format("_partition='p:z'") + ", df.schema)",
            "rows of partition 'p:z', which this batch does",
        ),
        ("df.mapInPandas(" + WRITTEN.format("_offset=7") + ", df.schema)", "outside [1, 2)"),
        ("df.drop('word')", "dropped the column word, which the table has"),
        ("df.withColumn('n', df['n'].cast('string'))", "Column n is string and was integer"),
        ("df.where('nonsense > 1')", "nonsense"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("__import__('sys').exit('no')", "SystemExit: no"),
        (
            "df.where('n > 5').localCheckpoint()",
            "does not show of which records they are (mapInPandas, createDataFrame, a checkp",
        ),
        ("df.withColumn('i', F.expr(\"interval '1' day\"))", "cannot hold a column of type interval"),
        ("df.groupBy('word').count()", "dropped the column _partition"),
    ],
)
def test_a_transform_that_does_not_fit_is_refused_before_the_commit(begun: World, body: str, said: str) -> None:
    for parked in begun.tree.parked():
        unpark(begun.tree, parked)
    begun.write(f"""
def transform(df):
    from pyspark.sql import functions as F
    return {body}
pipeline = Pipeline(source=source(), table=delta({{table!r}}), transform=transform)
""")
    events = begun.run("a", "b")
    assert kinds(events) == {"p:a": ParkedPartition, "p:b": ParkedPartition}
    assert all(said in e.reason for e in events), events
    assert all("\n" not in e.reason for e in events)
    assert all("rota retry" not in e.reason or e.reason.endswith(f"rota retry {e.partition}") for e in events)
    assert damage(begun.table / "main", {"p:a": {0: 1}, "p:b": {0: 1}}) == NO_DAMAGE


@pytest.mark.parametrize(
    ("text", "said", "person"),
    [
        ("source=source(schema='n duoble, word string')", "DUOBLE", True),
        ("source=source(), transform=lambda t: t.where('nn > 0')", "nn", True),
        ("source=source(), transform=lambda t: t.selectExpr('*', 'cast(raise_error(word) as string) e')", "w0", False),
    ],
)
def test_what_no_other_data_repairs_needs_a_person_at_once(world: World, text: str, said: str, person: bool) -> None:
    """A typo in a schema was retried for ever, without an alert."""
    world.write(f"pipeline = Pipeline({text}, table=delta({{table!r}}))\n")
    world.give("a")
    world.rows("a", "0", 2)
    world.run("a")
    parked = world.tree.parked()["p:a"].record
    assert said in parked.reason
    assert (parked.person, parked.failures, parked.retry_at is None) == (person, 1, False)


def test_a_new_column_of_the_transform_comes_into_the_table(world: World) -> None:
    world.give("a")
    world.rows("a", "0", 1)
    world.run("a")
    world.write(
        "pipeline = Pipeline(source=source(), table=delta({table!r}), "
        "transform=lambda df: df.selectExpr('*', 'n + 1 as m'))\n"
    )
    world.rows("a", "1", 1)
    assert kinds(world.run("a")) == {"p:a": CommittedBatch}
    assert sorted((r["_offset"], r.get("m")) for r in log(world.table / "main").rows()) == [(0, None), (1, 1)]


def test_the_poison_is_alone_at_the_start_before_it_is_skipped(world: World) -> None:
    """`rota skip` skips the file that the park names. The good files before it were written, and those after it follow."""
    world.write(UDF)
    world.give("a")
    for name in "01234":
        world.rows("a", name, 2)
    world.land("a", "3", ['{"n": 1, "word": "poison"}'])
    while not world.tree.parked():
        assert {type(e) for e in world.run("a")} <= {CommittedBatch, ParkedPartition}
    assert "in offset 3 (a/3.json)" in world.tree.parked()["p:a"].record.reason
    assert skip(world.tree, world.ports, "p:a") == (3, 4)
    world.until_idle("a")
    found = damage(world.table / "main", {"p:a": dict.fromkeys((0, 1, 2, 4), 2)})
    assert found == {**NO_DAMAGE, "gaps": 1}


# --- bad records ----------------------------------------------------------------------------------------------------


def set_aside(world: World) -> list[tuple[object, ...]]:
    """Return the quarantined rows that count: partition, offset, line, file."""
    ledger = open_table(world.table / "main", "g", world.tree.meta().id)
    counts = make_counter(ledger.read_log())
    rows = log(world.table / "quarantine").rows()
    good = [r for r in rows if counts(r["_partition"], r["_offset"], r["_attempt"])]
    return sorted((r["_partition"], r["_offset"], r["_position"], r["_file"], r["_raw"]) for r in good)


def test_a_bad_record_is_kept_with_reason_file_and_line(world: World) -> None:
    world.give("a", "b")
    good = [f'{{"n": {i}, "word": "w"}}' for i in range(20)]
    world.land("b", "0", ['\ufeff{"n": "x", "word": "w"}', *good])  # Spark does not count the byte order mark as text
    world.land("a", "0", [*good, '{"n": 1, "wo', *good, '{"n": "x", "word": "w"}', '{"n": 1, "wo'])
    events = {e.partition: e for e in world.run("a", "b") if isinstance(e, CommittedBatch)}
    assert {p: (e.rows, e.bad_rows) for p, e in events.items()} == {"p:a": (40, 3), "p:b": (20, 1)}
    assert set_aside(world) == [
        ("p:a", 0, 21, "a/0.json", '{"n": 1, "wo'),
        ("p:a", 0, 42, "a/0.json", '{"n": "x", "word": "w"}'),
        ("p:a", 0, 43, "a/0.json", '{"n": 1, "wo'),
        ("p:b", 0, 1, "b/0.json", '{"n": "x", "word": "w"}'),
    ]
    reasons = {r["_position"]: r["_reason"] for r in log(world.table / "quarantine").rows()}
    assert reasons[21].startswith("no JSON: ")
    assert reasons[42] == "not of the declared type: n"
    assert {"rota/g/p:a/offset", "rota/g/p:a/token"} <= set(log(world.table / "quarantine").transactions)


def test_too_many_bad_records_stop_the_partition_before_either_table_is_written(world: World) -> None:
    world.write(CSV)
    world.give("a", "b")
    for key, bad in (("a", 2), ("b", 1)):
        lines = ["n,word", *(["x,y,z"] * bad), *(["1,good"] * (3 - bad))]
        world.land(key, "0", lines, ".csv")
    events = world.run("a", "b")
    assert kinds(events) == {"p:a": ParkedPartition, "p:b": CommittedBatch}
    (parked,) = (e for e in events if isinstance(e, ParkedPartition))
    assert parked.reason == (
        "2 of 3 records of p:a are bad, more than max_bad_ratio=0.34: such as line 2 of a/0.csv (offset 0), the number "
        "of fields is wrong, or one is not of its declared type: n. Nothing was written. Mend the files or the schema, "
        "then: rota retry p:a"
    )
    assert parked.retry_at is None
    assert [(p, line) for p, _, line, *_ in set_aside(world)] == [("p:b", 2)]
    assert damage(world.table / "main", {"p:b": {0: 2}}) == NO_DAMAGE
    world.write(CSV.replace("0.34", "0.7"))
    unpark(world.tree, "p:a")
    assert kinds(world.run("a")) == {"p:a": CommittedBatch}
    assert [(p, line) for p, _, line, *_ in set_aside(world)] == [("p:a", 2), ("p:a", 3), ("p:b", 2)]


@pytest.mark.parametrize("column", ["attrs map<string,string>", "`a.b` string", "`a``b` array<int>"])
def test_a_bad_record_beside_columns_of_any_type_and_name(world: World, column: str) -> None:
    """A map cannot be sorted, and a name with a dot is not a path."""
    world.write(
        f'pipeline = Pipeline(source=source(schema="{column}, n long"), table=delta({{table!r}}), max_bad_ratio=0.5)\n'
    )
    world.give("a")
    world.land("a", "0", ['{"n": 1}', "{torn", '{"n": 2}'])
    assert kinds(world.run("a")) == {"p:a": CommittedBatch}
    assert [(p, line) for p, _, line, *_ in set_aside(world)] == [("p:a", 2)]
    assert damage(world.table / "main", {"p:a": {0: 2}}) == NO_DAMAGE


def test_of_several_files_the_one_with_too_many_bad_records_is_parked(world: World) -> None:
    """The number of rows after a filter is not the number of records."""
    world.write(CSV.replace("max_bad_ratio", "transform=lambda df: df.where('n > 0'), max_bad_ratio"))
    world.give("a")
    good, bad = ["n,word", *["1,good"] * 3], ["n,word", "1,good", *["x,y"] * 9]
    for name, lines in enumerate((good, good, bad, good)):
        world.land("a", str(name), lines, ".csv")
    while not world.tree.parked():
        assert {type(e) for e in world.run("a")} <= {CommittedBatch, ParkedPartition}
    assert damage(world.table / "main", {"p:a": {0: 3, 1: 3}}) == NO_DAMAGE
    reason = world.tree.parked()["p:a"].record.reason
    assert reason.startswith("9 of 10 records of p:a are bad")
    assert "line 3 of a/2.csv (offset 2)" in reason
    assert skip(world.tree, world.ports, "p:a") == (2, 3)
    assert kinds(world.run("a")) == {"p:a": CommittedBatch}


def test_a_header_that_changed_parks_instead_of_shifting_columns(world: World) -> None:
    world.write(CSV)
    world.give("a", "b")
    world.land("a", "0", ["word,n", "w,1"], ".csv")
    world.land("b", "0", ["n,word", "1,w"], ".csv")
    events = world.run("a", "b")
    assert kinds(events) == {"p:a": ParkedPartition, "p:b": CommittedBatch}
    (reason,) = (e.reason for e in events if isinstance(e, ParkedPartition))
    assert "CSV header does not conform to the schema" in reason
    assert "a/0.csv" in reason  # the landed file, not our link to it
    assert "stage" not in reason


@pytest.mark.parametrize("format", ["csv", "json", "parquet", "avro"])
def test_each_format_with_names_that_spark_would_take_for_a_pattern(world: World, format: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    world.write(f"pipeline = Pipeline(source=source(format={format!r}), table=delta({{table!r}}))\n")
    folder = world.folder / "land" / "a[1]{x} ä"
    folder.mkdir(parents=True)
    for name in ("0", "*[ab] é"):
        path = folder / f"{name}.{format}"
        if format == "parquet":
            pq.write_table(pa.table({"n": pa.array([1, 2], pa.int32()), "word": ["w0", "w1"]}), path)
        elif format == "avro":
            records = [{"n": 1, "word": "w0"}, {"n": 2, "word": "w1"}]
            path.write_bytes(avro_cases.write_file({"n": "int", "word": "string"}, records))
        else:
            path.write_text("1,w0\n2,w1\n" if format == "csv" else '{"n": 1, "word": "w0"}\n{"n": 2, "word": "w1"}\n')
    (key,) = world.ports.source.list_keys()
    assert key == "a%5B1%5D{x} ä"
    world.give(key)
    (event,) = world.run(key)
    assert (event.rows, event.bad_rows) == (4, 0)


@pytest.mark.parametrize("wanted", [False, True])
def test_a_parquet_file_without_a_declared_column_parks_unless_null_is_wanted(world: World, wanted: bool) -> None:
    """Spark reads a missing column as null: if a producer renames a column, the old column is null without a report."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    merged = ", options={'mergeSchema': 'true'}" if wanted else ""
    world.write(f"pipeline = Pipeline(source=source(format='parquet'{merged}), table=delta({{table!r}}))\n")
    world.give("a", "b")
    for place, name in (("a/1", "word"), ("b/1", "WORD"), ("a/2", "words")):
        file = world.folder / "land" / f"{place}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": pa.array([1], pa.int32()), name: ["w"]}), file)
    events = world.until_idle("a", "b")
    parked = [e.reason for e in events if isinstance(e, ParkedPartition)]
    if wanted:
        assert not parked
    else:
        assert [r for r in parked if "a/2.parquet has no column word" in r and "rota retry p:a" in r] == parked != []
    good = {"p:a": {0: 1, 1: 1} if wanted else {0: 1}, "p:b": {0: 1}}
    assert damage(world.table / "main", good) == NO_DAMAGE


def test_a_file_that_is_no_parquet_parks_its_partition(world: World) -> None:
    world.write("pipeline = Pipeline(source=source(format='parquet'), table=delta({table!r}))\n")
    world.give("a")
    world.land("a", "0", ["no parquet"], ".parquet")
    (parked,) = world.run("a")
    assert "0.parquet" in parked.reason
    assert not world.tree.checkpoints()["p:a"].record.offset


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_file_that_vanished_or_changed_parks_until_it_is_skipped(world: World) -> None:
    world.write("pipeline = Pipeline(source=source(max_files=1), table=delta({table!r}))\n")
    world.give("a", "b")
    for key in "ab":
        for name in "012":
            world.rows(key, name, 2)
    world.run("a", "b")
    (world.folder / "land/a/1.json").unlink()
    world.rows("b", "1", 3)
    events = {e.partition: e for e in world.run("a", "b")}
    assert "a/1.json (offset 1) vanished" in events["p:a"].reason
    assert "b/1.json (offset 1) changed" in events["p:b"].reason
    assert events["p:a"].retry_at is not None, "it may come back"
    assert events["p:b"].retry_at is None
    for key in "ab":
        assert skip(world.tree, world.ports, f"p:{key}", user="tests") == (1, 2)
    assert kinds(world.run("a", "b")) == {"p:a": CommittedBatch, "p:b": CommittedBatch}
    assert kinds(world.run("a", "b")) == {"p:a": IdlePartition, "p:b": IdlePartition}
    assert [c["rota.run"] for c in log(world.table / "main").said("skip")] == ["tests", "tests"]
    found = damage(world.table / "main", {f"p:{k}": {0: 2, 2: 2} for k in "ab"})
    assert (found["lost"], found["doubled"]) == (0, 0)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the second look"])
def test_a_file_that_changes_under_the_job_is_not_committed(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Otherwise bytes written after the read would be in no table, although the offset is consumed."""
    world.give("a", "b")
    world.rows("a", "0", 2)
    world.rows("b", "0", 2)
    write = writing.write

    def written(*args: Any, **more: Any) -> Any:
        files = write(*args, **more)
        world.rows("a", "0", 3)
        return files

    monkeypatch.setattr(writing, "write", written)
    if not guarded:
        monkeypatch.setattr(bisection.Bisection, "look_again", lambda *_: None)
    found = kinds(world.run("a", "b"))
    assert found == {"p:a": ParkedPartition if guarded else CommittedBatch, "p:b": CommittedBatch}
    consumed = {p: {0: rows} for p, rows in (("p:a", 3), ("p:b", 2)) if found[p] is CommittedBatch}
    assert damage(world.table / "main", consumed) == {**NO_DAMAGE, "lost": 0 if guarded else 1}
