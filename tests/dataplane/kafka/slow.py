"""A slow reader, so that something can happen during a read."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from rota.dataplane.kafka import reading


def make_slowly(mark: Path) -> Callable[..., Any]:
    """Yield small batches after a while, and write a mark after the first."""
    real = reading.make_batch

    def make(*of: Any) -> Any:
        mark.touch()
        threading.Event().wait(0.05)
        return real(*of)

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return make
