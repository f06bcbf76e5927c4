"""The reason of a bad record names the fields that do not parse, also within structs; at most five of them."""

from typing import Any

import pytest

from rota.run.consume import CommittedBatch
from tests.dataplane.conftest import log
from tests.dataplane.world import World

DEEP = "n int, at timestamp, `a.b` struct<c: struct<d: date>, e: double>, l array<int>, m map<string, int>, w string"
WIDE = ", ".join(f"f{number} int" for number in range(40))


def explain(world: World, schema: str, suffix: str, *lines: str, **options: str) -> list[Any]:
    """Return the reason of each line; all are bad."""
    form = f"format={suffix!r}, schema={schema!r}, options={options!r}"
    world.write(f"pipeline = Pipeline(source=source({form}), table=delta({{table!r}}), max_bad_ratio=1.0)\n")
    world.give("a")
    world.land("a", "0", lines, f".{suffix}")
    (event,) = (e for e in world.run("a") if isinstance(e, CommittedBatch))
    assert event.bad_rows == len(lines)
    return [row["_reason"] for row in log(world.table / "quarantine").rows()]


def test_of_json_each_field_that_does_not_parse_is_named_by_its_path(world: World) -> None:
    good = '"at": "2026-01-01", "l": [1], "m": {"k": 1}, "w": null'
    lines = {
        f'{{"n": "x", {good}}}': "n",
        f'{{"n": 3000000000, {good}, "a.b": null}}': "n",
        f'{{"n": 1, {good}, "a.b": {{"c": {{"d": "no day"}}, "e": 1.5}}}}': "a.b.c.d",
        f'{{"n": 1, {good}, "a.b": {{"c": 7, "e": "x"}}}}': "a.b.c, a.b.e",
        '{"n": null, "l": [1, "x"]}': "l",
        '{"m": {"k": "x"}, "w": "w", "at": "then"}': "at, m",
    }
    assert explain(world, DEEP, "json", *lines) == [f"not of the declared type: {names}" for names in lines.values()]


@pytest.mark.parametrize("sep", [",", "||"])
def test_of_csv_the_empty_fields_are_named_as_well(sep: str, world: World) -> None:
    wrong = "the number of fields is wrong"
    lines = {
        "x,1.5,w": f"{wrong}, or one is not of its declared type: n",
        "1,x,": f"{wrong}, or one is not of its declared type: d, w",
        "1,1.5": f"{wrong}, or one is not of its declared type: w",
        "1,1.5,w,4": wrong,
    }
    said = explain(world, "n int, d double, w string", "csv", *(line.replace(",", sep) for line in lines), sep=sep)
    assert said == list(lines.values())


def test_of_many_fields_the_first_are_named(world: World) -> None:
    line = ", ".join(f'"f{number}": "x"' for number in range(40))
    assert explain(world, WIDE, "json", f"{{{line}}}") == ["not of the declared type: f0, f1, f2, f3, f4 and 35 more"]
