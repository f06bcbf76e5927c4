"""The only vacuum: files that no version of a table names any more, after a week at least; and old checkpoints.

Law: a file that a running job writes, or that a reader of the last `retention` reads, is never deleted: everything deleted
is older than `retention`, which is longer than the longest run. Beside the tables' own folders only what is named like an
attempt of a run of Dagster's goes: what anybody else put there stays. (delta-rs must list the folder, `full=True`: an
attempt that died is in no log.)

The log itself is kept for ever, commit by commit: it proves every offset. Its checkpoints only spare reading it from the
start; each is a copy of the whole state, so together they grow with the square of the commits. A checkpoint goes where the
log is whole without it and two newer ones stand; not in the day after the next one was written, for whoever opened the
table before that may still read it.
"""

import re
import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from rota.errors import ConfigError
from rota.ledger.delta_log import DeltaLog

LEAST = timedelta(days=7)
TABLES = ("main", "quarantine", "index")
ATTEMPT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9a-f]{12}")  # a run's id, and one of the attempt
NEWEST, A_DAY = 2, 86_400.0  # checkpoints that stay; seconds, more than the longest run takes


def vacuum(folder: Path, retention: timedelta = LEAST, *, dry_run: bool = True) -> tuple[str, ...]:
    """What it deleted, or would delete, below the pipeline's table `folder`. Raises ConfigError below seven days."""
    if retention < LEAST:
        raise ConfigError(f"A retention of {retention} is too short: a run may still be writing. Give 7 days or more")
    hours = int(retention.total_seconds() // 3600)
    found: list[str] = []
    for name in TABLES:
        log = DeltaLog(str(folder / name))
        if table := log.open():
            deleted = table.handle.vacuum(retention_hours=hours, dry_run=dry_run, full=True)
            superseded = tuple(log.list_superseded(NEWEST, time.time() - A_DAY))
            found += [f"{name}/{path}" for path in (*deleted, *superseded)]
            for path in () if dry_run else superseded:
                log.delete(path)
    for left in _list_left_behind(folder, time.time() - retention.total_seconds()):
        found.append(str(left.relative_to(folder)))
        if not dry_run:
            shutil.rmtree(left, ignore_errors=True)
    return tuple(sorted(found))


def _list_left_behind(folder: Path, before: float) -> Iterator[Path]:
    """Links and raw records of runs that died."""
    for path in (*folder.glob("stage/*"), *folder.glob("quarantine/raw/*")):
        if ATTEMPT.fullmatch(path.name) and path.lstat().st_mtime < before:
            yield path
