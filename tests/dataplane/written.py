"""What a job of the tests wrote below a table on a disk."""

from collections.abc import Mapping
from pathlib import Path

from rota.dataplane import footers
from rota.ledger.values import DataFile


def read_footers(table: Path | str, attempt: str, ranges: Mapping[str, tuple[int, int]]) -> tuple[DataFile, ...]:
    """The files of an attempt, as a run describes and checks them."""
    files = footers.read_split(Path(table), f"data/{attempt}")
    footers.check_ranges(files, ranges)
    return files
