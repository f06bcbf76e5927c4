"""The Delta tables keep what every table promises."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rota.dataplane import footers, names
from rota.dataplane.delta.tables import open_table
from rota.ledger.ledger import Ledger
from rota.ledger.values import DataFile
from tests.dataplane.conformance.table_suite import TableSuite
from tests.dataplane.conftest import log

KINDS = {"_partition": "string", "_offset": "long"}
FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in KINDS.items()]
SCHEMA = {footers.SPARK: json.dumps({"type": "struct", "fields": FIELDS})}


class DeltaBench:
    """A Delta table in a folder; its rows are read from the JSON of the log, without delta-rs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "main"

    def open(self, *, group: str = "g", meta: str = "0" * 32, pipeline: str = "p") -> Ledger:
        return open_table(self.path, group, meta, pipeline=pipeline)

    def write(self, attempt: str, partition: str, offsets: range) -> DataFile:
        file = self.path / "data" / attempt / names.split(partition) / "part-0.parquet"
        file.parent.mkdir(parents=True)
        rows = pa.table({"_partition": [partition] * len(offsets), "_offset": list(offsets)})
        pq.write_table(rows.replace_schema_metadata(SCHEMA), file)
        return footers.read_footer(str(self.path), str(file.relative_to(self.path)))

    def rows(self) -> list[tuple[str, int]]:
        found = log(self.path).rows() if self.path.exists() else []
        return [(str(row["_partition"]), int(str(row["_offset"]))) for row in found]


class TestDeltaTable(TableSuite):
    bench = DeltaBench
