"""A client of their own for the tests of this folder: a case sets what its engine needs."""

from tests.dataplane.conftest import spark

__all__ = ["spark"]
