"""A reader that takes its time, so that something can happen meanwhile."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from rota.dataplane.kafka import reading


def make_slowly(mark: Path) -> Callable[..., Any]:
    """Makes a batch of few records after a while, and leaves the mark that one was made."""
    real = reading.make_batch

    def make(*of: Any) -> Any:
        mark.touch()
        threading.Event().wait(0.05)
        return real(*of)

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return make
