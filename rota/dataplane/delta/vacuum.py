"""The only vacuum of rota: deletes files that no table has named for at least a week, and old checkpoints.

Law: the vacuum never deletes a file that a running job writes, or that a reader of the last `retention` reads: each deleted
file is older than `retention`, which is longer than the longest run. Outside the tables' own folders the vacuum deletes only
paths with the name of an attempt of a Dagster run. (delta-rs must list the folder, `full=True`: the log does not name the
files of a killed attempt.)

Law: the vacuum also deletes unpublished files of the log, and empty folders, which Delta's vacuum ignores.

The log keeps all commits, old ones in packs, because they prove every offset. A checkpoint only saves a reader the log from
its start. Each is a copy of the whole state, so their total size grows with the square of the number of commits. A
checkpoint is deleted if the log has all commits, two newer checkpoints exist, and the next one is older than a day: until
then a reader may read the older one.
"""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from deltalake.exceptions import DeltaError
from pyarrow import fs

from rota.deltalog.delta_log import DeltaLog
from rota.deltalog.features import describe_error
from rota.deltalog.log_files import LOG
from rota.deltalog.packing import pack
from rota.deltalog.packs import FOLDER
from rota.errors import ConfigError, EnvironmentFailed
from rota.stores import delete_folder, is_url, join, open_files

MIN_RETENTION = timedelta(days=7)
TABLES = ("main", "quarantine", "index")
ATTEMPT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9a-f]{12}")  # the id of a run, and of an attempt
NEWEST, A_DAY = 2, 86_400.0  # checkpoints that stay; seconds, more than the longest run takes


def vacuum(location: str, retention: timedelta = MIN_RETENTION, *, dry_run: bool = True) -> tuple[str, ...]:
    """Delete files below the `location` of a pipeline's tables, and return their paths; with `dry_run` only return them.

    Raises: ConfigError below seven days; EnvironmentFailed if a store fails, and then the rest is left.
    """
    if retention < MIN_RETENTION:
        raise ConfigError(f"A retention of {retention} is too short: a run may still be writing. Give 7 days or more")
    try:
        return tuple(sorted(_vacuum(location, retention, dry_run=dry_run)))
    except (DeltaError, OSError) as error:
        raise EnvironmentFailed(
            f"{location} could not be vacuumed ({describe_error(error)}). No file of a version was deleted, and the next "
            f"maintenance tries again"
        ) from error


def _vacuum(location: str, retention: timedelta, *, dry_run: bool) -> list[str]:
    hours = int(retention.total_seconds() // 3600)
    found: list[str] = []
    for name in TABLES:
        log = DeltaLog(join(location, name))
        if log.open():
            deleted = log.load().vacuum(retention_hours=hours, dry_run=dry_run, full=True)
            superseded = tuple(log.list_superseded(NEWEST, time.time() - A_DAY))
            found += [f"{name}/{path}" for path in (*deleted, *superseded)]
            if not dry_run:
                log.delete(superseded)
    before = time.time() - retention.total_seconds()
    for left in list((_list_left_in_bucket if is_url(location) else _list_left_on_disk)(location, before)):
        found.append(left)
        if not dry_run:
            _delete(location, left)
    return found


def shorten_logs(location: str) -> int:
    """Write checkpoints that are due, and pack commits older than a day, of the logs below the location.

    Returns: how many commits were packed.
    Raises: EnvironmentFailed.
    """
    logs = (DeltaLog(join(location, name)) for name in TABLES)
    return sum(pack(log, time.time() - A_DAY) for log in logs if log.checkpoint())


def _list_left_in_bucket(location: str, before: float) -> Iterator[str]:
    """Yield folders with raw records of killed runs. The age of a folder in a bucket is that of its newest object."""
    files = open_files(location)
    for one in files.get_file_info(fs.FileSelector("quarantine/raw", allow_not_found=True)):
        if one.type == fs.FileType.Directory and ATTEMPT.fullmatch(one.base_name):
            within = files.get_file_info(fs.FileSelector(one.path, recursive=True))
            if max((each.mtime_ns for each in within if each.type == fs.FileType.File), default=0) < before * 1e9:
                yield str(one.path)


def _list_left_on_disk(location: str, before: float) -> Iterator[str]:
    """Yield paths that killed runs left and no table names: raw records, unpublished files, empty folders."""
    folder = Path(location)
    yield from (str(one.relative_to(folder)) for one in _list_paths(folder, before))


def _list_paths(folder: Path, before: float) -> Iterator[Path]:
    for path in (*folder.glob("stage/*"), *folder.glob("quarantine/raw/*")):
        if ATTEMPT.fullmatch(path.name) and path.lstat().st_mtime < before:
            yield path
    for name in TABLES:
        unpublished = (*folder.glob(f"{name}/{LOG}/*#*"), *folder.glob(f"{name}/{FOLDER}/*.tmp"))
        yield from (one for one in unpublished if one.stat().st_mtime < before)
        for below in ("data/*/*", "data/*"):  # inner folders first; the next call deletes those emptied now
            folders = (one for one in folder.glob(f"{name}/{below}") if one.is_dir())
            yield from (one for one in folders if one.stat().st_mtime < before and not any(one.iterdir()))


def _delete(location: str, left: str) -> None:
    path = Path(location, left)
    with suppress(OSError):  # another process deleted it, or wrote into it
        if is_url(location) or (path.is_dir() and not path.is_symlink() and any(path.iterdir())):
            delete_folder(location, left)
        elif path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
