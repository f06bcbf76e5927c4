"""Landing folders as a source: one folder a partition, an offset is a file's ordinal in the index.

Law: names may come late and out of order, and files may be half-written when they are first seen: nothing is lost, because
a file is read under the ordinal that the index gave it, once it rested, and only while it is still the same file. A
folder that cannot be listed, or a file that cannot be looked at, keeps its own partition waiting and no other.
"""

import bz2
import gzip
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.dataplane import names
from rota.dataplane.columns import lacking, rows
from rota.dataplane.fileindex import FileIndex, Landed
from rota.dataplane.source import CORRUPT
from rota.dataplane.table import OFFSET, PARTITION
from rota.errors import ConfigError, EnvironmentFailed, RotaError, SourceChanged
from rota.pipeline import Files, Pipeline
from rota.settings import ID, expanded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)
OURS = {
    "mode", "columnnameofcorruptrecord", "basepath", "recursivefilelookup", "pathglobfilter", "ignorecorruptfiles",
    "ignoremissingfiles", "modifiedbefore", "modifiedafter",
}  # fmt: skip
LINK = re.compile(rf"(?:file:)?/\S*/{PARTITION}=([^/\s]+)/{OFFSET}=(\d+)/file[.\w]*")
HIDDEN = ("_", ".")
LIVE = (  # what vanished, what changed, what the index no longer knows
    "vanished before it was consumed. Bring it back, then: rota retry. Or, if it is gone for good: rota skip",
    "changed after it got its offset. To take it as it is now: rota retry. Or to go on without it: rota skip",
    "an older one took its place. Bring the newer one back, then: rota retry",
)
AGAIN = (
    "vanished. Bring it back, or give a range without it",
    "changed while it was read again. Once nobody writes it any more, replay it",
    "an older one took its place. Bring the newer one back",
)


@dataclass(frozen=True, slots=True)
class Landing:
    """The landing folder `root` of pipeline `name`; `stage` is a folder that Spark can read, for links to landed files;
    `told_of` says what became of a file, and the next step."""

    name: str
    root: Path
    declared: Files
    index: FileIndex
    stage: Path
    clock: Callable[[], float] = time.time
    told_of: tuple[str, str, str] = LIVE

    def __post_init__(self) -> None:
        if taken := sorted(o for o in self.declared.options if o.lower() in OURS):
            raise ConfigError(
                f"Option {', '.join(taken)} of files({self.declared.path!r}) is set by rota. Leave it out"
            )

    @classmethod
    def of(cls, pipeline: Pipeline) -> "Landing":
        """The source that the pipeline declares, with the environment's variables filled in."""
        root = Path(expanded(pipeline.source.path)).absolute()
        table = Path(expanded(pipeline.table.path)).absolute()
        return cls(pipeline.name, root, pipeline.source, FileIndex(table / "index"), table / "stage")

    @property
    def corruptible(self) -> bool:
        """Text can be bad a record at a time; a bad Parquet file fails as a whole."""
        return self.declared.format != "parquet"

    def keys(self) -> tuple[str, ...]:
        """See `Source.keys`. A folder whose name makes an id that is too long is left out, with a warning."""
        try:
            folders = [f.name for f in os.scandir(self.root) if _folder(f) and not f.name.startswith(HIDDEN)]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise EnvironmentFailed(f"{self.root} cannot be listed ({error}). Check the folder's rights") from error
        keys = sorted(names.key(f) for f in folders)
        for key in (bad := [k for k in keys if not ID.fullmatch(f"{self.name}-{k}")]):
            log.warning("left_out=%s reason=its partition id would be longer than 128 characters", names.folder(key))
        return tuple(k for k in keys if k not in bad)

    def latest(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.latest`."""
        known = self.index.files(partitions)
        new = {p: self._new(p, frozenset(f.path for f in files)) for p, files in known.items()}
        return {p: len(known[p]) + len(files) for p, files in new.items() if files is not None}

    def given(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.given`."""
        return {p: len(files) for p, files in self.index.files(partitions).items()}

    def fix(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.fix`."""
        return {p: len(files) for p, files in self.index.extend(partitions, self._new).items()}

    def unseen(self, partition: str) -> str:
        """See `Source.unseen`."""
        try:
            self._landed(partition, frozenset())
        except OSError as error:
            return _blind(error, partition)
        return ""

    def first(self, latest: int) -> int:
        """See `Source.first`: `earliest`, `latest` or an offset, as declared."""
        start = self.declared.start
        return {"earliest": 0, "latest": latest}[start] if isinstance(start, str) else start

    def capped(self, starts: Mapping[str, int], latest: Mapping[str, int]) -> Mapping[str, tuple[int, int]]:
        """See `Source.capped`."""
        files = self.index.files(tuple(starts))
        return {p: (at, at + self._fitting(files[p][at : latest[p]])) for p, at in starts.items()}

    def broken(self, ranges: Mapping[str, tuple[int, int]]) -> Mapping[str, RotaError]:
        """See `Source.broken`."""
        files = self.index.files(tuple(ranges))
        errors = {p: self._broken(p, files[p], start, end) for p, (start, end) in ranges.items()}
        return {p: error for p, error in errors.items() if error}

    def rewritten(self, offsets: Mapping[str, Iterable[int]]) -> Mapping[str, tuple[int, ...]]:
        """Of these offsets those whose file is there and is not what the index says."""
        files = self.index.files(tuple(offsets))
        there = {p: [(o, files[p][o]) for o in of if o < len(files[p])] for p, of in offsets.items()}
        return {p: tuple(o for o, file in seen if self._again(file) != file) for p, seen in there.items()}

    def moving(self, partition: str, offsets: Iterable[int]) -> tuple[str, ...]:
        """Of the files of these offsets those that have not rested for `settle` seconds."""
        files, folder = self.index.files((partition,))[partition], names.folder(partition[len(self.name) + 1 :])
        rested = {f.path for f in _rested(self.root, folder, frozenset(), self.declared.settle, self.clock())}
        return tuple(files[o].path for o in offsets if files[o].path not in rested and self._now(files[o]))

    def as_now(self, ranges: Mapping[str, tuple[int, int]]) -> "Landing":
        """The same files under the same offsets, those of the ranges with the size and time of now; `index.keep` writes
        them down. One that is gone, or cannot be looked at, stays as it was, and `broken` tells of it."""
        files = self.index.files(tuple(ranges))
        now = {p: {o: self._again(f) for o, f in enumerate(files[p][a:b], a)} for p, (a, b) in ranges.items()}
        return replace(self, index=replace(self.index, renewed=now), told_of=AGAIN)

    @contextmanager
    def read(self, spark: "SparkSession", ranges: Mapping[str, tuple[int, int]], attempt: str) -> "Iterator[DataFrame]":
        """See `Source.read`. Linked as `_partition=<id>/_offset=<ordinal>/`, a file's two columns cost nothing a row."""
        stage = self.stage / attempt
        try:
            self._linked(stage, ranges)
            columns = f"{self.declared.schema}, {f'{CORRUPT} string, ' if self.corruptible else ''}"
            reader = spark.read.schema(f"{columns}{PARTITION} string, {OFFSET} bigint").format(self.declared.format)
            frame = reader.options(**self._options()).load(str(stage))
            self._complete(frame.columns, ranges)
            yield frame
        finally:
            shutil.rmtree(stage, ignore_errors=True)

    def held(self, ranges: Mapping[str, tuple[int, int]]) -> int | None:
        """See `Source.held`: the footers of Parquet say it."""
        if self.declared.format != "parquet":
            return None
        files = self.index.files(tuple(ranges))
        return rows([self.root / file.path for p, (start, end) in ranges.items() for file in files[p][start:end]])

    def place(self, partition: str, offset: int) -> str:
        """The file's path below the landing folder."""
        files = self.index.files((partition,))[partition]
        return files[offset].path if offset < len(files) else "a file that the index knows no more"

    def path(self, partition: str, offset: int) -> Path:
        """The file itself."""
        return self.root / self.place(partition, offset)

    def told(self, text: str) -> str:
        """See `Source.told`: the landed file instead of our link to it."""

        def place(link: re.Match[str]) -> str:
            files = self.index.files((link[1],))[link[1]]
            return files[int(link[2])].path if int(link[2]) < len(files) else link[0]

        return LINK.sub(place, text)

    def records(self, partition: str, offset: int) -> Iterator[str]:
        """See `Source.records`: the lines of the file."""
        path = self.path(partition, offset)
        opened: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.lower(), open)
        if self.declared.options.get("multiLine", "false").lower() == "true":
            return
        try:
            with opened(path, "rt", encoding="utf-8", errors="replace", newline="\n") as lines:
                for line in lines:
                    yield line.rstrip("\r\n")
        except OSError:
            return  # compressed in another way: the record is kept, its line is not known

    def reason(self, raw: str) -> str:
        """See `Source.reason`."""
        if self.declared.format == "json":
            try:
                json.loads(raw)
            except ValueError as error:
                return f"no JSON: {error}"
            return "a field is not of its declared type"
        return "a field is not of its declared type, or the number of fields is wrong"

    def _options(self) -> dict[str, str]:
        """What the laws need, over what the user says: a changed header is refused, a bad record is kept."""
        safe = {"csv": {"enforceSchema": "false", "columnPruning": "false"}}.get(self.declared.format, {})
        text = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT} if self.corruptible else {}
        strict = {"enableDateTimeParsingFallback": "false"} if self.corruptible else {}  # no 20200101 as a day of 57275
        kept = {**text, "ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}  # whatever Spark's settings say
        return {**safe, **strict, **self.declared.options, **kept}

    def _new(self, partition: str, known: frozenset[str]) -> list[Landed] | None:
        """The files of a partition that have no ordinal yet; None where they cannot be looked at, and only they."""
        try:
            return self._landed(partition, known)
        except OSError:
            self.keys()  # raises where it is not the partition's own fault
            return None

    def _landed(self, partition: str, known: frozenset[str]) -> list[Landed]:
        """The files of a partition that rested for `settle` seconds, without the known ones, by name. Raises OSError."""
        folder = names.folder(partition[len(self.name) + 1 :])
        return sorted(_rested(self.root, folder, known, self.declared.settle, self.clock()))

    def _fitting(self, files: tuple[Landed, ...]) -> int:
        """How many of the files go into one batch: within both caps, but at least one."""
        taken = size = 0
        for file in files[: self.declared.max_files]:
            size += file.size
            if taken and size > self.declared.max_bytes:
                break
            taken += 1
        return taken

    def _broken(self, partition: str, files: tuple[Landed, ...], start: int, end: int) -> RotaError | None:
        try:
            reason = self._changed(files, start, end)
        except OSError as error:
            self.keys()  # raises where it is not the partition's own fault
            return EnvironmentFailed(_blind(error, partition))
        return SourceChanged(reason, partition=partition) if reason else None

    def _changed(self, files: tuple[Landed, ...], start: int, end: int) -> str:
        """What became of the first of these files that is not what it was; empty if nothing. Raises OSError."""
        if end > len(files):
            return f"the index has {len(files)} files and offset {end} was asked for: {self.told_of[2]}"
        for offset, file in enumerate(files[start:end], start):
            now = self._now(file)
            if now is None and not self._mounted():
                raise EnvironmentFailed(
                    f"The landing folder {self.root} is not there, or empty. Mount it; no partition is parked"
                )
            if now != file:
                return f"{file.path} (offset {offset}) {self.told_of[now is not None]}"
        return ""

    def _now(self, file: Landed) -> Landed | None:
        """The file as it is now; None where it is gone. Raises OSError."""
        try:
            stat = (self.root / file.path).stat()
        except FileNotFoundError:
            return None
        return Landed(file.path, stat.st_size, stat.st_mtime_ns)

    def _again(self, file: Landed) -> Landed:
        """The file as it is now, or as it was where nobody can tell: whoever reads it is told."""
        try:
            return self._now(file) or file
        except OSError:
            return file

    def _mounted(self) -> bool:
        """A disk that is away leaves nothing, or the empty folder on which it was mounted."""
        try:
            return next(self.root.iterdir(), None) is not None
        except OSError:
            return False

    def _complete(self, columns: Sequence[str], ranges: Mapping[str, tuple[int, int]]) -> None:
        """A column that a Parquet file has not would be null in every row: told, not read, unless the user wants it so."""
        if self.declared.format != "parquet" or self.declared.options.get("mergeSchema", "false").lower() == "true":
            return
        declared = [name for name in columns if name not in (PARTITION, OFFSET)]
        files = self.index.files(tuple(ranges))
        for partition, (start, end) in ranges.items():
            for file in files[partition][start:end]:
                if missing := lacking(self.root / file.path, declared):
                    raise SourceChanged(
                        f"{file.path} has no column {', '.join(missing)}, and the schema of files(...) has. Change the "
                        f"schema, or say options={{'mergeSchema': 'true'}} for null, then: rota retry {partition}",
                        partition=partition,
                    )

    def _linked(self, stage: Path, ranges: Mapping[str, tuple[int, int]]) -> None:
        files = self.index.files(tuple(ranges))
        try:
            for partition, (start, end) in ranges.items():
                for offset, file in enumerate(files[partition][start:end], start):
                    folder = stage / f"{PARTITION}={partition}" / f"{OFFSET}={offset}"
                    folder.mkdir(parents=True)
                    (folder / f"file{_suffix(file.path)}").symlink_to(self.root / file.path)
        except OSError as error:
            raise EnvironmentFailed(f"{stage} cannot be written ({error}). Check the disk and its rights") from error


def _rested(root: Path, below: str, known: frozenset[str], settle: float, now: float) -> Iterator[Landed]:
    """By the inode's change time: unlike the modification time, no copy and no clock of a client can set it. Raises
    OSError."""
    try:
        entries = list(os.scandir(root / below))
    except FileNotFoundError:
        return
    for entry in entries:
        path = f"{below}/{entry.name}"
        if entry.name.startswith(HIDDEN) or path in known:
            continue
        if not _text(path):
            log.warning("left_out=%r reason=its name is not UTF-8; give it another", path)
            continue
        if entry.is_dir():
            yield from _rested(root, path, known, settle, now)
            continue
        try:
            stat = entry.stat()
        except FileNotFoundError:
            continue  # it vanished meanwhile
        if now - max(stat.st_ctime, min(stat.st_mtime, now)) >= settle:
            yield Landed(path, stat.st_size, stat.st_mtime_ns)


def _blind(error: OSError, partition: str) -> str:
    return f"{error.filename} cannot be looked at ({error.strerror}). Mend its rights, then: rota retry {partition}"


def _folder(entry: "os.DirEntry[str]") -> bool:
    """Whether it is a folder, or may be one: what cannot be looked at is a partition that says so."""
    try:
        return entry.is_dir()
    except OSError:
        return True


def _text(path: str) -> bool:
    """Whether the index can hold the name."""
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def _suffix(path: str) -> str:
    """The last suffix, by which Spark finds the compression."""
    suffix = Path(path).suffix
    return suffix if suffix[1:].isalnum() else ""
