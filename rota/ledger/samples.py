"""Samples of a table for operators: the first rows of a commit, and the rows of each partition.

Laws:
1. No function starts Spark or raises. Unreadable data is left out.
2. The amount of data that is read is bounded. A sample reads the first rows of one file for each partition. A count uses the
   log's statistics for a file of one partition. It reads the ids of other files, unless these have more than `MOST` rows.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

import pyarrow as pa

from rota.ledger.ledger import Ledger
from rota.ledger.overlap import may_hold
from rota.ledger.port import Files, Rows
from rota.record import PARTITION

MOST = 5_000_000


def read_samples(ledger: Ledger, versions: Mapping[str, int], most: int) -> dict[str, Rows]:
    """Return partition -> the first rows, column -> value, that the commit of the partition's version added."""
    found: dict[str, Rows] = {}
    for version in set(versions.values()):
        try:
            added = [unquote(body["path"]) for kind, body in ledger.log.read_actions(version) if kind == "add"]
        except Exception:  # law 1
            continue
        found |= ledger.files.read_first(added, [p for p, at in versions.items() if at == version], most)
    return found


def count_rows(ledger: Ledger, partitions: Iterable[str]) -> dict[str, int]:
    """Return how many rows each partition has now; empty if that is unknown."""
    try:
        table = ledger.open()
        return _count(ledger.files, table.files(), sorted(partitions)) if table else {}
    except Exception:  # law 1
        return {}


def _count(files: Files, named: pa.Table, partitions: list[str]) -> dict[str, int]:
    counts = dict.fromkeys(partitions, 0)
    mixed: list[str] = []
    rows = 0
    for file in named.to_pylist():
        low, high, held = file.get(f"min.{PARTITION}"), file.get(f"max.{PARTITION}"), file.get("num_records")
        if isinstance(low, str) and low == high and isinstance(held, int):
            if low in counts:
                counts[low] += held
        elif may_hold(partitions, {}, low, high):
            mixed.append(str(file["path"]))
            rows += held or 0
    if rows > MOST:
        return {}
    for path in mixed:
        for partition, held in files.count_rows(path).items():
            if partition in counts:
                counts[partition] += held
    return counts
