"""Declarations of a source that are refused, because data would be lost without an error."""

from typing import Any

import pytest

from rota import pipeline as declarations
from rota.dataplane.rabbitmq.declaration import queues
from rota.errors import ConfigError
from rota.pipeline import Format, files
from tests.dataplane.conftest import log
from tests.dataplane.world import World


@pytest.mark.parametrize("option", ["escape", "ESCAPE"])
def test_an_escape_that_spark_takes_for_nul_is_refused(option: str) -> None:
    """Otherwise a field lost its NULs."""
    with pytest.raises(
        ConfigError, match=r"escape of files.'/land'. is empty\. Spark then uses NUL, .* else leave it out$"
    ):
        files("/land", format="csv", schema="word string", options={option: ""})
    with pytest.raises(ConfigError, match=r"escape of queues.'q-'. is empty"):
        queues("amqp://h", prefix="q-", count=1, format="csv", schema="word string", options={option: ""})
    files("/land", format="csv", schema="word string", options={option: '"', "quote": ""})


@pytest.mark.parametrize(
    ("format", "schema", "said"),
    [
        ("json", "n int, _Partition string", "_Partition"),
        ("csv", "a struct<x:int,y:map<string,int>>, `_offset` long comment 'a, b'", "_offset"),
        ("parquet", "d decimal(5,2) not null, _OFFSET: long", "_OFFSET"),
        ("json", "_corrupt string, `a,_offset` int", "_corrupt"),
        ("parquet", "_corrupt string", ""),
        ("json", "a struct<_offset:int,_partition:int>, `a,_offset` int comment ', _offset int'", ""),
    ],
)
def test_a_column_that_would_take_the_place_of_ours_is_refused(format: Format, schema: str, said: str) -> None:
    """Otherwise a declared `_Partition` was missing."""
    if not said:
        files("/land", format=format, schema=schema)
        return
    with pytest.raises(ConfigError, match=rf"^Column {said} of files.* another name$"):
        files("/land", format=format, schema=schema)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"options": {"mergeSchema": "true"}}, "Option mergeSchema of files.*: of Avro, there is only avroSchema"),
        ({"new_columns": "add"}, "is for Parquet"),
        ({"nanoseconds": "truncate"}, "or, of Parquet, 'truncate'"),
    ],
)
def test_what_avro_does_not_have_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        files("/land", format="avro", schema="n int", **more)


@pytest.mark.parametrize(
    ("format", "options", "said"),
    [
        ("json", {"encoding": "UTF-16LE", "lineSep": "\n"}, "the second of two records on a line would be lost"),
        ("json", {"Charset": "utf32", "multiLine": "true"}, "the second of two records on a line would be lost"),
        ("json", {"encoding": "ISO-8859-1", "lineSep": "\n"}, ""),
        ("csv", {"charset": "UTF-16"}, "Give the option multiLine"),
        ("csv", {"encoding": "UTF-16", "multiLine": "true"}, ""),
        ("csv", {"encoding": "UTF-16LE", "LINESEP": "\n"}, "Give the option multiLine"),
        ("csv", {"encoding": "UTF-16LE", "LINESEP": "\n", "MULTILINE": "True"}, ""),
    ],
)
def test_an_encoding_in_which_records_would_be_lost_is_refused(
    format: Format, options: dict[str, str], said: str
) -> None:
    if not said:
        files("/land", format=format, schema="n int", options=options)
        return
    with pytest.raises(ConfigError, match=said):
        files("/land", format=format, schema="n int", options=options)


@pytest.mark.parametrize("more", [{}, {"lineSep": "\n"}], ids=["by any end of a line", "lineSep"])
@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32"])
def test_what_is_taken_is_read_as_it_is(world: World, encoding: str, more: dict[str, str]) -> None:
    """Also characters whose bytes together are those of a line's end."""
    words = ["a", "\u0a05\u4e00", "\u4e00\u0a05", "\u0d0a\u0a0d", "\U00010a0a", "two\nlines", "z"]
    options = {"encoding": encoding, "multiLine": "true", **more}
    form = f"format='csv', schema='n int, word string', options={options!r}"
    world.write(f"pipeline = Pipeline(source=source({form}), table=delta({{table!r}}), max_bad_ratio=1.0)\n")
    world.give("a")
    (world.folder / "land/a").mkdir(parents=True)
    text = "".join(f'{n},"{word}"\n' for n, word in enumerate(words))
    (world.folder / "land/a/0.csv").write_bytes(text.encode(encoding))
    world.run("a")
    assert [(r["n"], r["word"]) for r in log(world.table / "main").rows()] == list(enumerate(words))


@pytest.mark.parametrize(
    ("format", "options", "text", "rows"),
    [
        ("json", {"encoding": "UTF-16LE", "lineSep": "\n"}, '{"word": "a"}{"word": "b"}\n{"word": "c"}\n', []),
        ("csv", {"encoding": "UTF-16LE"}, "a\nb\nc", ["a"]),
        ("csv", {"encoding": "UTF-16LE", "lineSep": "\n"}, "a\n\u0a05\u4e00\nc", ["a", "\u4e00"]),
        ("csv", {"encoding": "UTF-16BE", "lineSep": "\n"}, "a\n\u4e00\u0a05\nc", ["\u4e00", "c"]),
        ("csv", {"encoding": "UTF-16", "lineSep": "\n"}, "a\nb\nc", ["a"]),
    ],
)
def test_without_the_refusal_they_are(
    world: World, monkeypatch: pytest.MonkeyPatch, format: str, options: dict[str, str], text: str, rows: list[str]
) -> None:
    """Ablation: Spark or rota takes a byte of another character for the end of a line or record."""
    monkeypatch.setattr(declarations, "check_encoding", lambda *_: None)
    more = f"format={format!r}, schema='word string', options={options!r}"
    world.write(f"pipeline = Pipeline(source=source({more}), table=delta({{table!r}}), max_bad_ratio=1.0)\n")
    world.give("a")
    (world.folder / "land/a").mkdir(parents=True)
    (world.folder / f"land/a/0.{format}").write_bytes(text.encode(options["encoding"]))
    world.run("a")
    assert [r["word"] for r in log(world.table / "main").rows()] == rows
