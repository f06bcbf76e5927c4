"""One Spark server for all tests of this folder."""

from tests.dataplane.conftest import endpoint, spark

__all__ = ["endpoint", "spark"]
