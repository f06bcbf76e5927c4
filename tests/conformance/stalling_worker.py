"""`rota worker` whose loop stalls, as on a disk that hangs, for as long as the file $STALLS exists.

Called with the options of `rota worker`; $UNWATCHED removes the watchdog.
"""

import os
from contextlib import nullcontext
from pathlib import Path

from rota.cli import worker
from rota.group.usage import Usage
from tests.waiting import wait_until

flag, news = Path(os.environ["STALLS"]), Usage.read_news


def hang(self: Usage) -> object:
    wait_until(lambda: not flag.exists(), 600)
    return news(self)


Usage.read_news = hang  # type: ignore[method-assign, assignment]
if os.environ.get("UNWATCHED"):
    worker.Watchdog = lambda *_: nullcontext()  # type: ignore[assignment, misc]
worker.command()
