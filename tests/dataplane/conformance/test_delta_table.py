"""The Delta tables keep what every table promises."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.dataplane import footers, names
from rota.dataplane.delta.tables import open_table
from rota.ledger.ledger import Ledger
from rota.ledger.values import DataFile
from rota.local.bucket import BucketServer
from rota.stores import make_folder, open_files
from tests.dataplane.conformance.table_suite import TableSuite
from tests.dataplane.conftest import log
from tests.dataplane.delta_tables import SCHEMA


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


class TestDeltaTable(TableSuite):
    bench = DeltaBench


class TestDeltaTableInABucket(TableSuite):
    @pytest.fixture
    def place(self, bucket: str, bucket_server: BucketServer) -> DeltaBench:  # type: ignore[override]
        return DeltaBench(bucket_server.data / bucket.removeprefix("s3://"), bucket)
