"""An error that one expects is one line at the top of the run and of the tick: the words that a command prints.

Law: it is still a failure: the run and the tick are red. Of any other error Dagster shows the traceback: that is a bug.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from rota.dagster.assets.page_keys import ERROR
from rota.dagster.private import DagsterUserCodeProcessError, SerializableErrorInfo
from rota.errors import RotaError


class ExpectedFailure(DagsterUserCodeProcessError, dg.Failure):
    """Dagster's Failure, of which a tick and a step store these words and nothing else."""

    def __init__(self, text: str, kind: str) -> None:
        self.kind = kind
        line = SerializableErrorInfo(message=text, stack=[], cls_name=kind)
        super().__init__(  # type: ignore[no-untyped-call]
            text, metadata={ERROR: kind}, allow_retries=False, user_code_process_error_infos=[line]
        )


@contextmanager
def in_one_line() -> Iterator[None]:
    """Raises a RotaError as ExpectedFailure: its words, and its kind as metadata. Its facts are left out: the words are free
    of secrets."""
    try:
        yield
    except RotaError as error:
        raise ExpectedFailure(str(error), type(error).__name__) from None
