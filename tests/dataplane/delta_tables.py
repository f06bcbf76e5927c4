"""Delta tables with batches of rota, written without Spark."""

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rota.dataplane import footers, names
from rota.dataplane.delta.tables import open_table
from rota.ledger.ledger import Ledger
from rota.ledger.values import Batch, DataFile, TableClaim
from rota.stores import make_folder, open_files
from tests.dataplane.conftest import log
from tests.dataplane.written import read_footers

META = "0" * 32
KINDS = {"_partition": "string", "_offset": "long"}
FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in KINDS.items()]
SCHEMA = {footers.SPARK: json.dumps({"type": "struct", "fields": FIELDS})}


def ledger(folder: Path, **more: Any) -> Ledger:
    return open_table(folder / "main", "g", **{"meta": META, **more})


def batch(table: Ledger, claimed: TableClaim, rows: int = 1, ends: dict[str, int] | None = None, **extra: Any) -> Batch:
    """Files with one row per offset and two offsets per partition, as Spark writes them."""
    ranges = {p: (at, (ends or {}).get(p, at + 2)) for p, at in claimed.offsets.items()}
    attempt = uuid.uuid4().hex
    kinds = {"_partition": "string", "_offset": "long", **extra}
    said = {
        "type": "struct",
        "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in kinds.items()],
    }
    for p, (start, end) in ranges.items():
        folder = Path(table.location) / "data" / attempt / names.split(p)
        folder.mkdir(parents=True)
        data = pa.table(
            {"_partition": [p] * (end - start), "_offset": list(range(start, end))}
            | {n: [None] * (end - start) for n in extra}
        )
        pq.write_table(data.replace_schema_metadata({footers.SPARK: json.dumps(said)}), folder / "f.parquet")
    files = read_footers(Path(table.location), attempt, ranges)
    counts = {p: end - start for p, (start, end) in ranges.items()}
    return Batch(uuid.uuid4().hex, "run", "w@0", attempt, 3, ranges, files, counts)


def expect_rows(**offsets: int) -> dict[str, dict[int, int]]:
    return {p: dict.fromkeys(range(end), 1) for p, end in offsets.items()}


def again(table: Ledger, start: int, end: int, **extra: Any) -> Batch:
    stand_in = TableClaim(None, 0, "", "", {}, {"p": start}, {})
    return batch(table, stand_in, ends={"p": end}, **extra)


def fill(folder: Path, batches: int = 3, *partitions: str, token: int = 1) -> Ledger:
    """A table with so many batches of these partitions, two offsets each. The first batch is version 2."""
    table, names = ledger(folder), partitions or ("p",)
    for _ in range(batches):
        claimed = table.claim(dict.fromkeys(names, token), dict.fromkeys(names, 0))
        table.commit(claimed, batch(table, claimed))
    return table


def append_batch(table: Ledger) -> None:
    claimed = table.claim({"p": 1}, {"p": 0})
    table.commit(claimed, batch(table, claimed))


def spark_schema(**kinds: Any) -> str:
    kinds = {"_partition": "string", "_offset": "long", **kinds}
    return json.dumps(
        {
            "type": "struct",
            "fields": [{"name": n, "type": t, "nullable": False, "metadata": {}} for n, t in kinds.items()],
        }
    )


class DeltaBench:
    """A Delta table in a folder, or in the bucket of that folder; its rows are read from the JSON of the log, without
    delta-rs."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.path = folder / "main"
        self.location = f"{url}/main" if url else str(self.path)

    def open(self, *, group: str = "g", meta: str = "0" * 32, pipeline: str = "p") -> Ledger:
        return open_table(self.location, group, meta, pipeline=pipeline)

    def write(self, attempt: str, partition: str, offsets: range) -> DataFile:
        file = f"data/{attempt}/{names.split(partition)}/part-0.parquet"
        make_folder(self.location, file.rpartition("/")[0])
        rows = pa.table({"_partition": [partition] * len(offsets), "_offset": list(offsets)})
        pq.write_table(rows.replace_schema_metadata(SCHEMA), file, filesystem=open_files(self.location))
        return footers.read_footer(self.location, file)

    def rows(self) -> list[tuple[str, int]]:
        found = log(self.path).rows() if self.path.exists() else []
        return [(str(row["_partition"]), int(str(row["_offset"]))) for row in found]
