"""The cost of a bad record with a long text, and its reason at a limit of Spark's parser."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rota.dataplane.spark import writing
from rota.run.consume import CommittedBatch, ParkedPartition
from tests.dataplane.conftest import log
from tests.dataplane.world import PLAIN, World

RECORDS = 40
LONGER = 20_000_001  # characters; one more than Spark's default limit


def measure(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))


@pytest.mark.parametrize("multiline", [True, False], ids=["a file that is a list", "a line that is a list"])
def test_a_text_that_many_bad_records_share_is_stored_once(
    multiline: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bad element makes all records of a list bad. Each had the whole file as its text: n records stored n files."""
    raw: list[int] = []
    write = writing.write

    def measured(frame: Any, table: str, folder: str, **more: bool) -> Any:
        files = write(frame, table, folder, **more)
        raw.extend(file.size for file in files if folder.startswith("raw/"))
        return files

    monkeypatch.setattr(writing, "write", measured)
    options = "{'multiLine': 'true'}" if multiline else "{}"
    world.write(f"pipeline = Pipeline(source=source(options={options}), table=delta({{table!r}}), max_bad_ratio=1.0)\n")
    world.give("a")
    records = [{"n": n, "word": f"{n:0>500}"} for n in range(RECORDS - 1)] + [{"n": "none", "word": "x"}]
    text = json.dumps(records)
    world.land("a", "0", [text])
    world.land("a", "1", [text])
    (event,) = (e for e in world.run("a") if isinstance(e, CommittedBatch))
    assert event.bad_rows == 2 * (RECORDS if multiline else 1)
    rows = log(world.table / "quarantine").rows()
    assert [(r["_offset"], r["_position"]) for r in rows] == [
        (o, None if multiline else 1) for o in (0, 1) for _ in (records if multiline else [0])
    ]
    assert [str(r["_raw"]).rstrip() for r in rows if r["_raw"] is not None] == [text, text]
    assert {r["_reason"] for r in rows} == {"a field is not of its declared type"}
    written = pq.ParquetFile(log(world.table / "quarantine").files[0]).metadata.row_group(0)
    assert written.total_byte_size < 3 * len(text)
    assert raw[0] < len(text), "what Spark wrote on the way has the text once, too"


def test_what_is_longer_than_sparks_parser_takes(world: World) -> None:
    """A text of JSON may have any length: one of 25 MB was quarantined as if of another type. Numbers have a limit."""
    world.write(PLAIN.replace("table!r})", "table!r}), max_bad_ratio=1.0"))
    world.give("a")
    world.land("a", "0", [f'{{"n": 1, "word": "{"x" * LONGER}"}}', f'{{"n": 2, "word": {"9" * 1001}}}'])
    (event,) = (e for e in world.run("a") if isinstance(e, CommittedBatch))
    assert (event.rows, event.bad_rows) == (1, 1)
    assert [len(str(row["word"])) for row in log(world.table / "main").rows()] == [LONGER]
    (bad,) = log(world.table / "quarantine").rows()
    assert bad["_reason"] == "a number has more than 1,000 digits, and Spark reads no such"


def test_a_nul_behind_a_record_is_called_what_it_is(world: World) -> None:
    """It was reported as a second value."""
    world.write(PLAIN.replace("source()", "source(options={'multiLine': 'true'})"))
    world.give("a")
    world.land("a", "0", ['{"n": 1}\0'])
    (event,) = world.run("a")
    assert isinstance(event, ParkedPartition)
    assert event.reason.startswith(
        'a/0.json (offset 0) has something behind its first value, which Spark alone reads: {"n": 1}\\0'
    )
