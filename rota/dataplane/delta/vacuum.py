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

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from rota.dataplane.delta.delta_io import open_table
from rota.errors import ConfigError

LEAST = timedelta(days=7)
TABLES = ("main", "quarantine", "index")
ATTEMPT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9a-f]{12}")  # a run's id, and one of the attempt
LOG, CHECKPOINT = "_delta_log", re.compile(r"(\d{20})\.checkpoint\..*parquet")
NEWEST, A_DAY = 2, 86_400.0  # checkpoints that stay; seconds, more than the longest run takes


def vacuum(folder: Path, retention: timedelta = LEAST, *, dry_run: bool = True) -> tuple[str, ...]:
    """What it deleted, or would delete, below the pipeline's table `folder`. Raises ConfigError below seven days."""
    if retention < LEAST:
        raise ConfigError(f"A retention of {retention} is too short: a run may still be writing. Give 7 days or more")
    hours = int(retention.total_seconds() // 3600)
    found: list[str] = []
    for name in TABLES:
        if table := open_table(folder / name):
            deleted = table.vacuum(retention_hours=hours, dry_run=dry_run, full=True)
            found += [f"{name}/{path}" for path in deleted]
            for path in _list_superseded(folder / name / LOG):
                found.append(f"{name}/{LOG}/{path.name}")
                if not dry_run:
                    path.unlink(missing_ok=True)
    for left in _list_left_behind(folder, time.time() - retention.total_seconds()):
        found.append(str(left.relative_to(folder)))
        if not dry_run:
            shutil.rmtree(left, ignore_errors=True)
    return tuple(sorted(found))


def is_checkpoint(path: str) -> bool:
    """Whether what the vacuum deleted is a checkpoint of a log."""
    return bool(CHECKPOINT.fullmatch(path.rpartition("/")[2]))


def _list_superseded(log: Path) -> Iterator[Path]:
    """The checkpoints that nobody needs; a checkpoint may have several parts."""
    if not (log / f"{0:020}.json").exists():
        return  # somebody shortened the log: what the checkpoints say is said nowhere else
    parts: dict[int, list[Path]] = {}
    for path in log.glob("*.checkpoint.*"):
        if match := CHECKPOINT.fullmatch(path.name):
            parts.setdefault(int(match[1]), []).append(path)
    versions = sorted(parts)
    for version, successor in list(pairwise(versions))[: 1 - NEWEST]:
        written = min(path.stat().st_mtime for path in parts[successor])
        if written < time.time() - A_DAY and version != _read_named_checkpoint(log):
            yield from sorted(parts[version])


def _read_named_checkpoint(log: Path) -> int | None:
    """The checkpoint at which a reader starts."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((log / "_last_checkpoint").read_text())["version"])
    return None


def _list_left_behind(folder: Path, before: float) -> Iterator[Path]:
    """Links and raw records of runs that died."""
    for path in (*folder.glob("stage/*"), *folder.glob("quarantine/raw/*")):
        if ATTEMPT.fullmatch(path.name) and path.lstat().st_mtime < before:
            yield path
