"""An error that one expects is one line at the top of the run: the words that a command prints."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from rota.errors import RotaError


@contextmanager
def in_one_line() -> Iterator[None]:
    """Raises a RotaError as Dagster's Failure: its words, and its kind as metadata. Its facts are left out: the words are
    free of secrets."""
    try:
        yield
    except RotaError as error:
        raise dg.Failure(str(error), metadata={"error": type(error).__name__}, allow_retries=False) from None
