"""The only vacuum: files that no version of a table names any more, after a week at least.

Law: a file that a running job writes, or that a reader of the last `retention` reads, is never deleted: everything deleted
is older than `retention`, which is longer than the longest run. (delta-rs must list the folder, `full=True`: an attempt
that died is in no log.)
"""

import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from rota.dataplane.opening import opened
from rota.errors import ConfigError

LEAST = timedelta(days=7)
TABLES = ("main", "quarantine", "index")


def vacuum(folder: Path, retention: timedelta = LEAST, *, dry_run: bool = True) -> tuple[str, ...]:
    """What it deleted, or would delete, below the pipeline's table `folder`. Raises ConfigError below seven days."""
    if retention < LEAST:
        raise ConfigError(f"A retention of {retention} is too short: a run may still be writing. Give 7 days or more")
    hours = int(retention.total_seconds() // 3600)
    found: list[str] = []
    for name in TABLES:
        if table := opened(folder / name):
            deleted = table.vacuum(retention_hours=hours, dry_run=dry_run, full=True)
            found += [f"{name}/{path}" for path in deleted]
    for left in _left_behind(folder, time.time() - retention.total_seconds()):
        found.append(str(left.relative_to(folder)))
        if not dry_run:
            shutil.rmtree(left, ignore_errors=True)
    return tuple(sorted(found))


def _left_behind(folder: Path, before: float) -> Iterator[Path]:
    """Links and raw records of runs that died."""
    for path in (*folder.glob("stage/*"), *folder.glob("quarantine/raw/*")):
        if path.stat().st_mtime < before:
            yield path
