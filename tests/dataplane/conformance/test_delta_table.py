"""The Delta tables have the laws of every table."""

import pytest

from rota.local.bucket import BucketServer
from tests.dataplane.conformance.table_suite import TableSuite
from tests.dataplane.delta_tables import DeltaBench


class TestDeltaTable(TableSuite):
    bench = DeltaBench


class TestDeltaTableInABucket(TableSuite):
    @pytest.fixture
    def place(self, bucket: str, bucket_server: BucketServer) -> DeltaBench:  # type: ignore[override]
        return DeltaBench(bucket_server.data / bucket.removeprefix("s3://"), bucket)
