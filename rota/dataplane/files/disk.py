"""A landing folder on a disk that Spark and every run see under one path."""

import filecmp
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG
from typing import TypeVar

from rota.dataplane.files import listing
from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.files.landing import NO_FILE, Rested, explain_archived
from rota.dataplane.files.listed import DISK
from rota.errors import ConfigError

T = TypeVar("T")
log = logging.getLogger(__name__)
ASIDE = ".rota-consumed"  # for files that are being taken away: hidden, and on the same disk


@dataclass(frozen=True, slots=True)
class DiskLanding:
    """The folder `root`. See `Landing`."""

    root: Path

    @property
    def place(self) -> str:
        """See `Landing.place`."""
        return str(self.root)

    @property
    def spark_place(self) -> str:
        """See `Landing.spark_place`. Hadoop drops `a/..` from a path also where `a` is a link."""
        root = self.root.resolve() if ".." in self.root.parts else self.root
        return f"{DISK}{str(root).lstrip('/')}"

    def find_place(self) -> str:
        """See `Landing.find_place`."""
        if not self.root.is_dir():
            what = "is no folder" if self.root.exists() else "is not there"
            raise ConfigError(f"{self.root} {what}. Make the folder, mount its disk, or mend the path of files(...)")
        return str(self.root)

    def list_folders(self) -> Sequence[str]:
        """See `Landing.list_folders`; none if the root is missing."""
        return self._list(listing.list_folders)

    def list_ignored(self) -> Sequence[tuple[str, str]]:
        """See `Landing.list_ignored`; none if the root is missing."""
        return self._list(listing.list_ignored)

    def _list(self, look: Callable[[Path], Iterable[T]]) -> list[T]:
        try:
            return list(look(self.root))
        except (FileNotFoundError, NotADirectoryError):
            if self.root.exists():
                self.find_place()
            return []

    def list_rested(
        self, known: Mapping[str, frozenset[str]], settle: float, now: float, yet: list[float]
    ) -> Iterator[Rested]:
        """See `Landing.list_rested`."""
        for folder, paths in known.items():
            try:
                yield folder, list(listing.list_rested(self.root, folder, paths, settle, now, yet))
            except OSError as error:
                yield folder, error

    def look(self, files: Iterable[LandedFile]) -> Callable[[LandedFile], LandedFile | None]:
        """See `Landing.look`: a state is read when the function is called."""
        del files
        return self.read_state

    def read_state(self, file: LandedFile) -> LandedFile | None:
        """Return the file's current state; None if the file is gone."""
        path = f"{self.root}/{file.path}"
        try:
            stat = os.lstat(path)
            if not S_ISREG(stat.st_mode):  # rota follows no link and opens no pipe
                os.stat(path)  # raises for a link that leads nowhere: then the file is gone
                return LandedFile(file.path, NO_FILE, 0)
        except FileNotFoundError:
            return None
        return LandedFile(file.path, stat.st_size, listing.read_time(stat))

    def is_gone(self, path: str) -> bool:
        """See `Landing.is_gone`."""
        try:
            (self.root / path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def is_away(self) -> bool:
        """See `Landing.is_away`: an unmounted disk leaves no folder, or the empty folder of its mount point."""
        try:
            return next(self.root.iterdir(), None) is None
        except OSError:
            return True

    def list_left(self, folder: str) -> set[str]:
        """See `Landing.list_left`."""
        roots = (self.root, self.root / ASIDE)
        return {path for root in roots for path, _ in listing.list_files(root, folder)}

    def take(self, file: LandedFile, to: str) -> bool:
        """See `Landing.take`: links the file into the archive, renames it to a hidden path and compares it there.

        A different file is put back. If the process dies, an archived file stays where a replay finds it.
        """
        aside = replace(file, path=f"{ASIDE}/{file.path}")
        left = self.read_state(aside) is not None  # by a process that died here
        done = left and (not to or self._archive(aside, to)) and self._finish(file, aside)
        now = self.read_state(file)
        if now != file:
            return done or now is None
        if to and not self._archive(file, to):
            return False
        (self.root / aside.path).parent.mkdir(parents=True, exist_ok=True)
        try:
            (self.root / file.path).rename(self.root / aside.path)
        except FileNotFoundError:
            return True  # another process was faster
        return self._finish(file, aside)

    def _archive(self, file: LandedFile, to: str) -> bool:
        """Link the file to the path `to`, unless `to` has its content. Return False if another file took the file's place.
        Raises OSError; FileExistsError if `to` has different content."""
        mine, there = self.root / file.path, self.root / to
        there.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(mine, there, follow_symlinks=False)
        except FileNotFoundError:
            return True  # another process was faster
        except FileExistsError:
            if not filecmp.cmp(mine, there, shallow=False):
                raise FileExistsError(explain_archived(to)) from None
            return True
        if self.read_state(replace(file, path=to)) != replace(file, path=to):
            there.unlink()
            return False
        return True

    def _finish(self, file: LandedFile, aside: LandedFile) -> bool:
        if self.read_state(aside) != aside:
            self._put_back(aside.path, file.path)
            return False
        (self.root / aside.path).unlink(missing_ok=True)
        return True

    def _put_back(self, aside: str, path: str) -> None:
        """Return the file to its path. If another file is there by now, the file stays in `ASIDE`."""
        try:
            os.link(self.root / aside, self.root / path, follow_symlinks=False)
        except FileExistsError:
            log.warning("file=%s lies_in=%s why=another file took its place", path, aside)
            return
        (self.root / aside).unlink(missing_ok=True)

    def find(self, file: LandedFile) -> Path:
        """See `Landing.find`."""
        return self.root / file.path
