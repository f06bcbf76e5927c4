"""Sizes that grow with the columns of a table, without Spark: log, samples, page, and merged files."""

from pathlib import Path

import dagster as dg
import pytest

from rota.dagster.assets.metadata import make_schema
from rota.dataplane.delta.parquet_files import COLUMNS
from rota.ledger import merging
from rota.ledger.merging import merge_beside_run
from rota.ledger.samples import read_samples
from rota.run.samples import read_columns
from tests.dataplane.conftest import log
from tests.dataplane.delta_tables import batch, ledger

WIDE = 3_000
BYTES = 250  # per column, on the page and in a commit, as docs/files.md states


def test_a_wide_table_has_samples_a_page_and_is_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{n:05}" for n in range(WIDE)]
    table, version = ledger(tmp_path), 0
    for _ in range(2):
        claim = table.claim({"p:a": 1}, {"p:a": 0})
        version = table.commit(claim, batch(table, claim, **dict.fromkeys(names, "string"))).version
    commits = (tmp_path / "main" / "_delta_log").glob("*.json")
    assert max(one.stat().st_size for one in commits) < WIDE * BYTES
    columns = read_columns(table)
    assert [*columns][-WIDE:] == names
    assert len(dg.serialize_value(make_schema(columns))) < WIDE * BYTES
    (sample, *_) = read_samples(table, {"p:a": version}, 5)["p:a"]
    assert len(sample) == COLUMNS
    monkeypatch.setattr(merging, "FEW", 2)
    merged = merge_beside_run(table)
    assert (merged.before, merged.after) == (2, 1)
    (file,) = log(tmp_path / "main").files
    assert file.exists()
    rows = log(tmp_path / "main").rows()
    assert [row["_offset"] for row in rows] == list(range(4))
    assert all(row.keys() >= set(names) for row in rows)
