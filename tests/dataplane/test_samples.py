"""Sample rows of a table for a person: bounded, in any folder, and never an error."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rota.dataplane.delta.parquet_files import COLUMNS
from rota.ledger import samples
from rota.ledger.samples import count_rows, read_samples
from tests.dataplane.delta_tables import batch, ledger


def commit(folder: Path, partition: str, ends: int = 2) -> int:
    """Commit rows with a column `n`. Return the version."""
    table = ledger(folder)
    claim = table.claim({partition: 1}, {partition: 0})
    return table.commit(claim, batch(table, claim, ends={partition: ends}, n="integer")).version


def find_file(folder: Path) -> Path:
    (file,) = folder.rglob("f.parquet")
    return file


def test_in_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "100%a #?ü"
    version = commit(folder, "p:Café Zürich", 7)
    seen = read_samples(ledger(folder), {"p:Café Zürich": version}, 5)
    assert seen == {"p:Café Zürich": tuple({"_offset": n, "n": None} for n in range(5))}
    assert count_rows(ledger(folder), ["p:Café Zürich", "p:x"]) == {"p:Café Zürich": 7, "p:x": 0}


def test_values_that_python_has_not_and_many_columns(tmp_path: Path) -> None:
    version = commit(tmp_path, "p:a")
    far = pa.array([2**31 - 1, 0], pa.date32())  # in the year 5,881,580
    wide = {f"c{i}": [i, i] for i in range(50)}
    pq.write_table(
        pa.table({"_partition": ["p:a"] * 2, "far": far, "nested": [[{"x": 1}], None], **wide}), find_file(tmp_path)
    )
    first, second = read_samples(ledger(tmp_path), {"p:a": version}, 5)["p:a"]
    assert len(first) == COLUMNS
    assert first["far"] not in (None, "")
    assert (first["nested"], second["nested"], first["c0"]) == ([{"x": 1}], None, 0)


def test_of_a_large_file_a_few_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = commit(tmp_path, "p:a")
    pq.write_table(pa.table({"_partition": ["p:a"] * 300_000, "n": range(300_000)}), find_file(tmp_path))
    monkeypatch.setattr(pq.ParquetFile, "read", None)
    assert [row["n"] for row in read_samples(ledger(tmp_path), {"p:a": version}, 5)["p:a"]] == [0, 1, 2, 3, 4]


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    assert (read_samples(ledger(tmp_path), {"p:a": 0}, 5), count_rows(ledger(tmp_path), ["p:a"])) == ({}, {})
    version = commit(tmp_path, "p:a")
    find_file(tmp_path).write_bytes(b"no Parquet")
    assert read_samples(ledger(tmp_path), {"p:a": version}, 5) == {}
    assert count_rows(ledger(tmp_path), ["p:a"]) == {"p:a": 2}, "the log has it"
    find_file(tmp_path).unlink()
    assert read_samples(ledger(tmp_path), {"p:a": version, "p:b": version, "p:c": 99}, 5) == {}


def test_where_too_many_rows_would_have_to_be_read_nothing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for p in ("p:a", "p:b"):
        commit(tmp_path, p)
    DeltaTable(str(tmp_path / "main")).optimize.compact()
    assert count_rows(ledger(tmp_path), ["p:a", "p:b"]) == {"p:a": 2, "p:b": 2}
    monkeypatch.setattr(samples, "MOST", 3)
    assert count_rows(ledger(tmp_path), ["p:a"]) == {}
    assert count_rows(ledger(tmp_path), ["q:z"]) == {"q:z": 0}, "no file may hold them"
