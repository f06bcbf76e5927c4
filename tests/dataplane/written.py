"""Files and rows that a job of the tests wrote below a table."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from rota.dataplane import footers
from rota.ledger.values import DataFile
from tests.dataplane.conftest import log
from tests.dataplane.world import World


def read_footers(table: Path | str, attempt: str, ranges: Mapping[str, tuple[int, int]]) -> tuple[DataFile, ...]:
    """Return the files of an attempt, as a run describes and checks them."""
    paths = sorted(str(one.relative_to(table)) for one in Path(table, "data", attempt).glob("*/*.parquet"))
    files = tuple(footers.read_footer(str(table), path) for path in paths)
    footers.check_ranges(files, ranges)
    return files


def read_numbers(world: World) -> dict[tuple[str, int], Counter[int]]:
    """Return the numbers `n` of the table, by partition and offset."""
    found: dict[tuple[str, int], Counter[int]] = {}
    for row in log(world.table / "main").rows():
        found.setdefault((str(row["_partition"]), int(str(row["_offset"]))), Counter())[int(str(row["n"]))] += 1
    return found
