"""One parse decides: a record is good if every declared column parses, whatever the transform uses; else it is bad."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rota.dataplane.spark import parsing, quarantine, writing
from rota.errors import ConfigError, EnvironmentFailed
from rota.pipeline import files
from rota.run.consume import CommittedBatch
from tests.dataplane.conftest import log
from tests.dataplane.landing_folders import open_files
from tests.dataplane.world import World

SCHEMA = (
    "id long, name string, amount int, `a.b` double, day date, tags map<string,int>, part struct<x:int,`y z`:boolean>"
)
GOOD: dict[str, Any] = {
    "id": 1, "name": "n", "amount": 2, "a.b": 0.5, "day": "2026-01-01", "tags": {"t": 1}, "part": {"x": 1, "y z": True},
}  # fmt: skip
WRONG: dict[str, Any] = {  # a wrong value for each column; a string takes anything
    "id": "one", "amount": "many", "a.b": "half", "day": "2026-02-30", "tags": {"t": "x"}, "part": {"x": 1, "y z": 3},
}  # fmt: skip
FLAT = ("id", "name", "amount", "a.b", "day")
TRANSFORMS = {
    "none": None,
    "few": "df.select('_partition', '_offset', 'id')",
    "none of the data": "df.select('_partition', '_offset')",
    "other": "df.select('_partition', '_offset', df['`a.b`'].alias('b'))",
    "drop": "df.drop('amount', 'day')",
    "rename": "df.withColumnRenamed('amount', 'n').where('n > 0')",
    "nothing": "df.where(F.lit(False))",
    "nothing passes": "df.where('id > 1000')",
    "twice": "df.union(df)",
    "with itself": "df.alias('a').join(df.select('id', '_partition', '_offset'), ['id', '_partition', '_offset'])",
    "without a match": "df.join(df.where('id > 1000').select('_partition', '_offset'), ['_partition', '_offset'])",
    "distinct": "df.drop('tags').distinct()",
    "exploded": "df.select('_partition', '_offset', F.explode('tags'))",
    "in Python": "df.withColumn('u', F.udf(lambda n: str(n), 'string')('id')).select('_partition', '_offset', 'u')",
    "in Arrow, stopped": "(lambda d: d.mapInArrow(lambda it: [next(it)], d.schema))(df.select('_partition', '_offset'))",
    "looked at": "(df.limit(1).collect(), df)[1]",
    "looked at, nothing": "(df.limit(1).collect(), df.where(F.lit(False)))[1]",
}

OF_CSV = ("none", "few", "other", "nothing", "looked at, nothing")


def pipeline(format: str, schema: str, transform: str | None, **more: object) -> str:
    extra = "".join(f", {name}={value!r}" for name, value in more.items())
    text = f"""
def transform(df):
    from pyspark.sql import functions as F
    return {transform}
pipeline = Pipeline(source=source(format={format!r}, schema={schema!r}{extra}), table=delta({{table!r}}),
"""
    return text + f"    transform={'transform' if transform else None}, max_bad_ratio=1.0)\n"


def of_json(record: Mapping[str, Any]) -> str:
    return json.dumps(record)


def of_csv(record: Mapping[str, Any]) -> str:
    return ",".join(str(record[name]) for name in FLAT)


def aside(world: World) -> list[tuple[str, str]]:
    return sorted((r["_partition"], r["_raw"]) for r in log(world.table / "quarantine").rows())


def consumed(world: World, key: str) -> tuple[int, int]:
    """Return rows and bad records of the only batch."""
    (event,) = world.run(key)
    assert isinstance(event, CommittedBatch), event
    return event.rows, event.bad_rows


# --- whatever the transform uses ------------------------------------------------------------------------------------


def test_a_bad_amount_is_set_aside(world: World) -> None:
    """One of 20 was in no table, without a report."""
    world.write(pipeline("json", "id long, name string, amount int", None))
    world.give("a")
    lines = [json.dumps({"id": i, "name": f"n{i}", "amount": i if i != 7 else "many"}) for i in range(20)]
    world.land("a", "0", lines)
    assert consumed(world, "a") == (19, 1)
    assert sorted(r["id"] for r in log(world.table / "main").rows()) == [i for i in range(20) if i != 7]
    assert aside(world) == [("p:a", lines[7])]


@pytest.mark.parametrize(("format", "name"), [*(("json", t) for t in TRANSFORMS), *(("csv", t) for t in OF_CSV)])
def test_a_wrong_value_in_any_column_whatever_the_transform_uses(world: World, format: str, name: str) -> None:
    """A bad record for each column among good ones, in two partitions, all in one job."""
    transform, text = TRANSFORMS[name], of_json if format == "json" else of_csv
    schema = SCHEMA if format == "json" else SCHEMA.partition(", tags")[0]
    world.write(pipeline(format, schema, transform))
    world.give("0", "1")
    wrong = [(c, {**GOOD, "id": 100, c: WRONG[c]}) for c in WRONG if format == "json" or c in FLAT]
    bad: dict[str, list[str]] = {}
    for key in ("0", "1"):
        lines = [text({**GOOD, "id": n}) for n in range(6)]
        bad[f"p:{key}"] = [text(record) for _, record in wrong[int(key) :: 2]]
        for at, line in enumerate(bad[f"p:{key}"]):
            lines.insert(2 * at + int(key), line)
        world.land(key, "0", lines, f".{format}")
    events = {e.partition: e for e in world.run("0", "1")}
    assert all(isinstance(e, CommittedBatch) for e in events.values()), events
    assert {p: e.bad_rows for p, e in events.items()} == {p: len(lines) for p, lines in bad.items()}
    assert aside(world) == sorted((p, line) for p, lines in bad.items() for line in lines)
    if name in ("none", "few", "none of the data", "other", "drop", "rename", "in Python", "looked at"):
        assert {e.rows for e in events.values()} == {6}
    assert not [r for r in log(world.table / "main").rows() if r.get("id") == 100]


def test_what_makes_the_parser_see_it_all_is_the_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: a count of one column. Spark prunes unused columns, and the record is in no table."""
    monkeypatch.setattr(parsing, "mark_whole", lambda frame: frame[frame.columns[0]])
    world.write(pipeline("json", "id long, name string, amount int", "df.select('_partition', '_offset', 'id')"))
    world.give("a")
    world.land("a", "0", [of_json(GOOD), of_json({**GOOD, "amount": "many"})])
    assert consumed(world, "a") == (2, 0)


def test_the_plain_job_reads_its_records_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bad records there is no second pass, which would take as long as the first."""
    monkeypatch.setattr(quarantine, "set_aside", None)
    world.write(pipeline("json", SCHEMA, TRANSFORMS["in Python"]))
    world.give("a")
    world.land("a", "0", [of_json(GOOD)] * 3)
    assert consumed(world, "a") == (3, 0)


# --- what parses ----------------------------------------------------------------------------------------------------

VALUES: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {  # good, bad
    ("json", "bigint"): (("1", "null"), ('"1"', "1.5", "1e3", "9223372036854775808", "true")),
    ("json", "int"): (("-1",), ('"1"', "1.0", "2147483648", '""')),
    ("json", "double"): (("1", "1e400", '"NaN"'), ('"1.5"', '""', "[1]")),
    ("json", "decimal(5,2)"): (("1.239", '"1.5"'), ("12345.6", "999.999", '""')),
    ("json", "string"): (("1", '{"a": 1}', '"\\u0000"', '"\\ud800"'), ()),
    ("json", "boolean"): (("true",), ('"true"', "1")),
    ("json", "date"): (('"2020-1-1"', '"0000-01-01"', '"10000-01-01"'), ('"2020-02-30"', '"20200101"', "18262")),
    ("json", "timestamp"): (('"2020-01-01"', "1577836800"), ('"2020-13-01"', "1.5", '"now"')),
    ("json", "timestamp_ntz"): (('"2020-01-01T00:00:00"',), ('"2020-01-01T00:00:00Z"', "1577836800")),
    ("json", "binary"): (('"AQ=="',), ('"x!"', "1")),
    ("json", "array<int>"): (("[1, null]",), ('[1, "x"]', "5")),
    ("csv", "int"): (("1", "+1", ""), ("1.5", " 1", "2147483648", "1,2")),
    ("csv", "tinyint"): (("127",), ("200",)),
    ("csv", "double"): (("1e400", "NaN", "1"), ("x", "1,5")),
    ("csv", "decimal(5,2)"): (("1.239",), ("12345.6",)),
    ("csv", "boolean"): (("TRUE",), ("1", "yes")),
    ("csv", "date"): (("2020-01-01",), ("20200101", "2020-01-01 x", "18262", "2020-02-30")),
    ("csv", "timestamp"): (("2020-01-01T00:00:00",), ("20200101", "1577836800")),
}


@pytest.mark.parametrize("format", ["json", "csv"])
def test_what_parses(world: World, format: str) -> None:
    """The table in the docstring of `parsing`, checked with Spark: one partition per type, all in one job."""
    kinds = [kind for f, kind in VALUES if f == format]
    world.write(pipeline(format, ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds)), None))
    keys = [str(i) for i in range(len(kinds))]
    world.give(*keys)
    for i, kind in enumerate(kinds):
        values = [value for some in VALUES[format, kind] for value in some]
        of_csv = [",".join((*[""] * i, value, *[""] * (len(kinds) - i - 1))) for value in values]
        world.land(
            str(i), "0", of_csv if format == "csv" else [f'{{"c{i}": {value}}}' for value in values], f".{format}"
        )
    found = {
        kinds[int(e.partition[2:])]: (e.rows, e.bad_rows) for e in world.run(*keys) if isinstance(e, CommittedBatch)
    }
    assert found == {kind: tuple(map(len, VALUES[format, kind])) for kind in kinds}


@pytest.mark.parametrize(
    "schema", ["n tinyint", "n int, s struct<x: BYTE, y: int>", "a array<tinyint>", "n byte not null"]
)
def test_a_type_that_spark_wraps_is_refused_in_json(schema: str) -> None:
    with pytest.raises(ConfigError, match="reads 200 in JSON as -56"):
        files("/land", format="json", schema=schema)
    files("/land", format="csv", schema=schema)


def test_a_column_may_be_called_like_it() -> None:
    files("/land", format="json", schema="byte int, tinyint string, `a byte` int, s struct<byte: int>")


@pytest.mark.parametrize("option", ["ignoreMissingFiles", "ignoreCorruptFiles", "modifiedBefore", "modifiedAfter"])
def test_an_option_that_leaves_files_out_is_refused(world: World, option: str) -> None:

    world.write(f"pipeline = Pipeline(source=source(options={{{option!r}: 'true'}}), table=delta({{table!r}}))\n")
    with pytest.raises(ConfigError, match=option):
        open_files(world.pipeline)


def test_text_that_is_no_utf8_is_set_aside(world: World) -> None:
    world.write(pipeline("json", "n int, word string", None))
    world.give("a")
    world.rows("a", "0", 2)
    with (world.folder / "land/a/0.json").open("ab") as file:
        file.write(b'{"n": 3, "word": "caf\xe9"}\n')
    assert consumed(world, "a") == (2, 1)
    (row,) = log(world.table / "quarantine").rows()
    assert (row["_position"], row["_raw"]) == (3, '{"n": 3, "word": "caf\ufffd"}')


# --- counted, not believed ------------------------------------------------------------------------------------------

HIDDEN = ["guarded", "without the guard"]
UNCOUNTED = {"lineSep": "\n"}  # with this option only Spark counts lines


def hidden(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return the reports of Spark's tasks about their files, without one of them."""
    return lambda *args, **more: real(*args, **more)[1:]


def unequal(one: int, other: int, what: str, than: str) -> None:
    """Ablation: counts are not compared."""


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (None, "2 records to read, 0 that were written or found bad"),
        ("df.where('n >= 0')", "2 rows that Spark wrote, 0 that its files hold"),
    ],
)
@pytest.mark.parametrize("guarded", [True, False], ids=HIDDEN)
def test_a_hidden_file_of_what_spark_wrote_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool, transform: str | None, said: str
) -> None:
    """Its rows would be lost, and its offsets consumed."""
    world.write(pipeline("json", "n int, word string", transform))
    world.give("a", "b")
    world.rows("a", "0", 2)
    world.rows("b", "0", 2)
    monkeypatch.setattr(writing, "write", hidden(writing.write))
    if not guarded:
        monkeypatch.setattr(parsing, "require_same", unequal)
        assert sum(e.rows for e in world.run("a", "b") if isinstance(e, CommittedBatch)) == 2
        assert world.tree.checkpoints()["p:a"].record.offset == 1
        return
    with pytest.raises(EnvironmentFailed, match=said):
        world.run("a", "b")
    assert not world.tree.parked()
    assert not log(world.table / "main").said("commit")
    monkeypatch.undo()
    assert [e.rows for e in world.run("a", "b") if isinstance(e, CommittedBatch)] == [2, 2]


@pytest.mark.parametrize("guarded", [True, False], ids=HIDDEN)
def test_a_hidden_file_of_the_bad_records_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    world.write(pipeline("json", "n int", None))
    world.give("a")
    world.land("a", "0", ['{"n": 1}', '{"n": "x"}'])
    explain = quarantine.explain_all
    monkeypatch.setattr(quarantine, "explain_all", lambda _, *rest: explain((), *rest))
    if not guarded:
        monkeypatch.setattr(parsing, "require_same", unequal)
        assert consumed(world, "a") == (1, 1)
        assert not aside(world)
        return
    with pytest.raises(EnvironmentFailed, match="1 bad records of p:a, 0 that were set aside"):
        world.run("a")
    assert not log(world.table / "main").said("commit")


@pytest.mark.parametrize("guarded", [True, False], ids=HIDDEN)
def test_a_count_that_lies_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """Spark finds a bad record, but reports no bad one. Nothing else counted the lines."""
    world.write(pipeline("json", "n int", None, options=UNCOUNTED))
    world.give("a")
    world.land("a", "0", ['{"n": 1}', '{"n": "x"}'])
    real = parsing.read_counts
    monkeypatch.setattr(
        parsing, "read_counts", lambda seen: {k: 0 if k == parsing.BAD else n for k, n in real(seen).items()}
    )
    if not guarded:
        monkeypatch.setattr(parsing, "require_same", unequal)
        assert consumed(world, "a") == (1, 0)
        return
    with pytest.raises(EnvironmentFailed, match="2 records to read, 1 that were written or found bad"):
        world.run("a")
    assert not log(world.table / "main").said("commit")
    world.write(pipeline("json", "n int", "df.where('n > 0')", options=UNCOUNTED))
    with pytest.raises(EnvironmentFailed, match="2 records that Spark read, 1 that it handed on or found bad"):
        world.run("a")


def test_a_count_that_is_lost_is_taken_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write(pipeline("json", "n int", None))
    world.give("a")
    world.land("a", "0", ['{"n": 1}', '{"n": "x"}'])
    real = parsing.read_counts
    monkeypatch.setattr(parsing, "read_counts", lambda seen: n if parsing.RECORDS not in (n := real(seen)) else {})
    assert consumed(world, "a") == (1, 1)


def test_records_of_parquet_are_those_of_its_footers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that skips a part of a file, because of any setting."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    world.write(pipeline("parquet", "n int", "df.where('n > 0')"))
    world.give("a")
    (world.folder / "land/a").mkdir(parents=True)
    pq.write_table(pa.table({"n": pa.array(range(5), pa.int32())}), world.folder / "land/a/0.parquet")
    real = parsing.parse
    monkeypatch.setattr(parsing, "parse", lambda frame, *more, **how: real(frame.where("n <> 3"), *more, **how))
    with pytest.raises(EnvironmentFailed, match="4 records that Spark read, 5 that the files of the source hold"):
        world.run("a")
    world.write(pipeline("parquet", "n int", "df.withColumn('m', df['n'] + 1)"))
    lost = "5 records to read, 4 that were written or found bad"
    with pytest.raises(EnvironmentFailed, match=lost):
        world.run("a")
    monkeypatch.setattr(parsing, "require_same", unequal)
    assert consumed(world, "a") == (4, 0)  # the ablation: a row is lost
    assert world.tree.checkpoints()["p:a"].record.offset == 1


@pytest.mark.parametrize("transform", [None, "df.where('n is not null')"])
def test_a_column_of_parquet_may_be_called_as_the_text_of_a_bad_record(world: World, transform: str | None) -> None:
    """The column was taken for it: rows in which it was not null were in no table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    world.write(pipeline("parquet", "n int, _corrupt string", transform))
    world.give("a")
    (world.folder / "land/a").mkdir(parents=True)
    rows = {"n": pa.array(range(3), pa.int32()), "_corrupt": ["what another Spark set aside", None, "x"]}
    pq.write_table(pa.table(rows), world.folder / "land/a/0.parquet")
    assert consumed(world, "a") == (3, 0)
    assert Counter(r["_corrupt"] for r in log(world.table / "main").rows()) == Counter(rows["_corrupt"])


NULS = ('"a\0b"', '"\0"', '"a\0"', '"\0""x"', '"""\0"', '"a""\0""b"', "a\0b")


@pytest.mark.parametrize("multiline", ["false", "true"])
def test_a_nul_in_quotes_is_read_whatever_escapes_the_quote(world: World, multiline: str) -> None:
    """Spark's parser dropped it if the quote is its own escape, which most writers of CSV use."""
    keys = {"doubled": {"Escape": '"'}, "other": {"escape": "'", "quote": "'"}, "plain": {}}
    for key, options in keys.items():
        options = {**options, "multiLine": multiline}
        world.write(pipeline("csv", "n int, word string", None, options=options))
        quote = options.get("quote", '"')
        texts = [text for text in NULS if '""' not in text or key in ("doubled", "other")]
        world.land(key, "0", [f"{n},{text}".replace('"', quote) for n, text in enumerate(texts)], ".csv")
        world.give(key)
        assert consumed(world, key) == (len(texts), 0)
        rows = {r["n"]: r["word"] for r in log(world.table / "main").rows() if r["_partition"] == f"p:{key}"}
        wanted = [text[1:-1].replace('""', '"') if text[0] == '"' else text for text in texts]
        assert [rows[n] for n in range(len(texts))] == [text.replace('"', quote) for text in wanted]


def test_a_nul_is_read_where_nothing_quotes(world: World) -> None:
    """Spark's parser took it for the quote."""
    texts = ["a\0b", "\0", '\0"a', "\0x\0", '"a"', "\\\0"]
    world.write(pipeline("csv", "n int, word string", None, options={"quote": ""}))
    world.land("a", "0", [f"{n},{text}" for n, text in enumerate(texts)], ".csv")
    world.give("a")
    assert consumed(world, "a") == (len(texts), 0)
    assert {r["n"]: r["word"] for r in log(world.table / "main").rows()} == dict(enumerate(texts))
