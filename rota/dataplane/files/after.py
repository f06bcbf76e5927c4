"""Archive or delete landed files once they are consumed: `files(..., after=...)`.

Laws:
1. A file is taken away only if it was consumed: the table has committed its rows, and its partition's checkpoint was
   written. A file that was skipped, or that landed before a partition's start, stays.
2. Only the file that was consumed is taken away (`Landing.take`). A different file that took its place stays.
3. A process may die at any step, and two may work at once. The next maintenance finds the files that are left.
4. The index keeps the file's entry: its offset stays valid, and a file that lands later under its name is not a new one.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.files.landing import Landing
from rota.dataplane.ports import Tidied
from rota.errors import RotaError

log = logging.getLogger(__name__)
ARCHIVE = "archive:"
NAMED = 3  # remaining files that a report names


@dataclass(frozen=True, slots=True)
class Tidier:
    """Takes consumed files away from the landing folder, as `after` declares."""

    landing: Landing
    after: str

    @property
    def archive(self) -> str:
        """The folder below the landing folder to which files are moved; empty if they are not moved."""
        return self.after.removeprefix(ARCHIVE) if self.after.startswith(ARCHIVE) else ""

    def look(self, files: Iterable[LandedFile], *, archived: bool = True) -> Callable[[LandedFile], LandedFile]:
        """Return a function that returns the current state of each of these files.

        The function searches the landing folder and, if `archived`, the archive. It returns the file unchanged if the file
        is gone or its state cannot be read: the job that reads the file reports that.
        """
        landed = list(files)
        found = self._look(self.landing.look(landed), landed)
        if self.archive and archived:
            away = [self.name_archived(file) for file in landed if file not in found]
            moved = self._look(self.landing.look(away), away)
            found |= {file: moved[to] for file in landed if (to := self.name_archived(file)) in moved}
        return lambda file: found.get(file, file)

    def _look(
        self, look: Callable[[LandedFile], LandedFile | None], files: Iterable[LandedFile]
    ) -> dict[LandedFile, LandedFile]:
        found: dict[LandedFile, LandedFile] = {}
        for file in files:
            try:
                if now := look(file):
                    found[file] = now
            except OSError:
                continue
        return found

    def name_archived(self, file: LandedFile) -> LandedFile:
        """Return the file with its path in the archive."""
        return replace(file, path=f"{self.archive}/{file.path}")

    def explain_taken(self, file: LandedFile, *, again: bool) -> tuple[str, str]:
        """Return why a file that is gone may have been taken away, and the first half of the next step; empty if no file is
        taken away.

        Args:
            again: the file was consumed and is to be read again.

        Raises: OSError.
        """
        if self.after == "keep":
            return "", ""
        if again:
            return f"was taken away after it was consumed (after={self.after!r})", "Land it again"
        if self.archive and self.landing.look([to := self.name_archived(file)])(to):
            older = "this is an older table than the one that has it"
            return f"was consumed, and lies in {self.archive}/: {older}", "Move it back"
        return (
            f"is gone: it vanished before it was consumed; or this is an older table than the one that has it, and it was "
            f"taken away after that (after={self.after!r})",
            "Bring it back from a copy, or skip it; once it is there",
        )

    def tidy(self, consumed: Iterable[tuple[str, Iterable[LandedFile]]]) -> Tidied:
        """Take away consumed files, folder by folder. Raise nothing: the log names the files that stay. A folder's iterable
        of files is read only if the folder still has files."""
        taken, stays = 0, list[str]()
        for folder, files in consumed if self.after != "keep" else ():
            try:
                if there := self.landing.list_left(folder):
                    taken += sum(self._take(file, stays) for file in files if file.path in there)
            except (OSError, RotaError) as error:
                log.warning("folder=%s not_tidied=%s", folder, error)
        more = (f"{len(stays) - NAMED} more consumed files stay for the same reason",) if len(stays) > NAMED else ()
        return Tidied(taken, (*stays[:NAMED], *more))

    def _take(self, file: LandedFile, stays: list[str]) -> bool:
        try:
            taken = self.landing.take(file, self.name_archived(file).path if self.archive else "")
        except FileExistsError as error:
            log.warning("file=%s not_taken_away=%s", file.path, error)
            stays.append(f"{self.landing.place}/{file.path} was consumed and stays: {error}")
            return False
        except OSError as error:  # such as an object that is too large to be copied: the others go
            log.warning("file=%s not_taken_away=%s", file.path, error)
            return False
        if not taken:
            log.warning("file=%s not_taken_away=another file took its place; see rota check", file.path)
        return taken
