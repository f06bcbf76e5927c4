"""A client of their own for the tests of this folder: a case sets what its engine needs. And a server of buckets."""

from collections.abc import Iterator

import pytest

from rota.java import list_jars
from rota.local.bucket import BucketServer
from tests.dataplane.conftest import spark

__all__ = ["spark"]


@pytest.fixture(scope="module")
def buckets(bucket_server: BucketServer) -> Iterator[BucketServer]:
    """A server of S3, which the environment of this module's tests speaks to."""
    assert list_jars(), "Spark has no jars for buckets. Type: make s3a"
    with pytest.MonkeyPatch.context() as patched:
        for name, value in bucket_server.environ.items():
            patched.setenv(name, value)
        yield bucket_server
