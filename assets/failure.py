"""Expected errors as one line at the top of the run and of the tick: the line that a command prints.

Law: the run and the tick still fail. Any other error is a bug, for which Dagster shows the traceback.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from rota.dagster.assets.page_keys import ERROR
from rota.dagster.private import DagsterUserCodeProcessError, SerializableErrorInfo
from rota.errors import RotaError


class ExpectedFailure(DagsterUserCodeProcessError, dg.Failure):
    """Dagster's Failure, of which a tick and a step store only this text."""

    def __init__(self, text: str, kind: str) -> None:
        self.kind = kind
        line = SerializableErrorInfo(message=text, stack=[], cls_name=kind)
        super().__init__(  # type: ignore[no-untyped-call]
            text, metadata={ERROR: kind}, allow_retries=False, user_code_process_error_infos=[line]
        )


@contextmanager
def in_one_line() -> Iterator[None]:
    """Raise a RotaError as ExpectedFailure, with its text and its kind. Its facts are left out, as they may be secret."""
    try:
        yield
    except RotaError as error:
        raise ExpectedFailure(str(error), type(error).__name__) from None
