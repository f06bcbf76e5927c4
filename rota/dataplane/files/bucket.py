"""A landing folder in a bucket: a prefix of its keys.

Law: a bucket publishes an object as a whole, so no object has to settle. An object is the same while its size and ETag are
the same; `modified` is a number computed from the ETag. Each list and each read returns the newest object.

Law: an object may land late under an earlier name, so each poll lists all keys of its partitions, a thousand a request. A
list that began behind the newest known name would never return that object. One list continues from folder to folder, and
skips folders that were not requested. A poll starts at most one list a folder, and far fewer if folders hold few keys.

Law: a key is hidden if any part of it is hidden (`is_hidden`). An empty object whose key ends in a slash only marks a
folder; a process checks it once. Any other object that is not read has a reason. If obstore refuses to list a key, Arrow
lists the names of its prefix, and one request for each new object reads the ETag.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from rota import stores
from rota.dataplane.files import listing
from rota.dataplane.files.bucket_object import BucketObject
from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.files.landing import Rested, explain_archived
from rota.dataplane.names import is_hidden
from rota.errors import ConfigError, EnvironmentFailed, printable
from rota.portions import take_portions
from rota.stores import NO_BUCKET, OddKey, as_os_errors

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PAGE = 1000  # keys of a response
END = chr(0x10FFFF)  # sorts behind all keys
AT_ONCE = 16  # parallel requests
BLOCK = 1 << 20  # bytes of two objects that one comparison reads
HELD = 10_000  # new objects of one list in memory
POLL_INTERVAL = 5.0  # seconds, while no object lands: each list costs money
DEAR = 16  # the price of a list, in requests for one object
ODD = re.compile(r"[\x00-\x1f\x7f]|//|/$")
WHY_ODD = "its key has a control character, or a slash too many; land it under another"
Found = tuple[str, int, object]  # key, bytes, ETag
FOLDERS: set[tuple[str, str]] = set()  # place and path of empty objects that only mark a folder


@dataclass(frozen=True, slots=True)
class BucketLanding:
    """The objects below `place`, `s3://bucket/prefix`. See `Landing`."""

    place: str

    @property
    def spark_place(self) -> str:
        """See `Landing.spark_place`."""
        return f"s3a://{self.place.partition('://')[2]}"

    @property
    def store(self) -> "ObjectStore":
        """The client of the bucket."""
        return stores.open_objects(self.place)

    def find_place(self) -> str:
        """See `Landing.find_place`: a prefix exists if its bucket does."""
        try:
            self._list_top()
        except OSError as error:
            if NO_BUCKET in str(error):
                raise ConfigError(f"{self.place}: there is no such bucket. Make it, or mend files(...)") from None
            raise EnvironmentFailed(f"{self.place} cannot be listed ({error}). Check its endpoint and rights") from None
        return self.place

    def list_folders(self) -> Sequence[str]:
        """See `Landing.list_folders`: the first part of each key with a slash."""
        return [one for one in self._list_top()[0] if not _is_hidden(one) and not ODD.search(one)]

    def list_ignored(self) -> Sequence[tuple[str, str]]:
        """See `Landing.list_ignored`."""
        found = {path: listing.ASIDE for path in self._list_top()[1] if not _is_hidden(path)}
        if self._has_odd():
            odd = (one.path for one in self._list_by_arrow("", recursive=True) if one.is_file)
            found |= {printable(path): WHY_ODD for path in odd if ODD.search(path) and not _is_hidden(path)}
        return list(found.items())

    def _has_odd(self) -> bool:
        """Whether obstore refuses to list a key. Hidden folders at the top are skipped: an archive may be large."""
        last = ""
        try:
            while last < END:
                _, last = self._list_page(last)
                if last < END and is_hidden(last.partition("/")[0]):
                    last = f"{last.partition('/')[0]}/{END}"
        except OddKey:
            return True
        return False

    def list_rested(
        self, known: Mapping[str, frozenset[str]], settle: float, now: float, yet: list[float]
    ) -> Iterator[Rested]:
        """See `Landing.list_rested`: each object counts as settled."""
        del settle, now, yet
        along = sorted(known, key=lambda folder: f"{folder}/")  # in the order of their keys
        shares = iter(take_portions(along, PAGE, lambda folder: len(known[folder])))  # a page of known keys each
        left = list[list[str]]()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while some := [*left, *islice(shares, 2 * AT_ONCE)]:  # lists run ahead of the caller by no more than these
                found = pool.map(lambda folders: self._list_or_each(folders, known), some)
                left = []
                for folders, listed in zip(some, found, strict=True):
                    yield from listed.items()
                    left += [rest] if (rest := folders[len(listed) :]) else []

    def _list_or_each(
        self, folders: Sequence[str], known: Mapping[str, frozenset[str]]
    ) -> dict[str, list[LandedFile] | OSError]:
        """List the folders together; the result ends early if they have many new objects. If that list fails, list each
        folder alone, so that an error is attributed to its folder. The list of a single folder reads no key behind it."""
        if len(folders) > 1:
            with suppress(OSError):
                return {folder: self._land(found) for folder, found in self._list_along(folders, known).items()}
        listed: dict[str, list[LandedFile] | OSError] = {}
        for folder in folders:
            try:
                listed[folder] = self._list_one(folder, known[folder])
            except OSError as error:
                listed[folder] = error
        return listed

    def _list_along(self, folders: Sequence[str], known: Mapping[str, frozenset[str]]) -> dict[str, Iterable[Found]]:
        """Return the new objects of the folders, which are in the order of their keys. Stop after the folder with which
        they are many. Raises OSError, and OddKey."""
        found: dict[str, dict[str, Found]] = {folder: {} for folder in folders}
        at, last, held = 0, "", 0  # the first unfinished folder, the last listed key, the new objects
        while at < len(folders) and (held < HELD or not at):
            page, last = self._list_page(max(last, _before(f"{folders[at]}/")))
            for path, one in page.items():
                folder, slash, _ = path.partition("/")
                if slash and folder in found and _is_new(path, known[folder]):
                    found[folder][path] = path, one["size"], _read_tag(one)
                    held += 1
            while at < len(folders) and last >= f"{folders[at]}0":  # `0` sorts right behind the slash
                at += 1
        return {folder: found[folder].values() for folder in folders[:at]}

    def _list_page(self, after: str) -> tuple[dict[str, Any], str]:
        """Return the first objects after a key by path, and the key up to which they are all. Raises OSError, OddKey."""
        with as_os_errors(self.place):
            page = next(iter(self.store.list(offset=after, chunk_size=PAGE)), ())
        there = {one["path"]: one for one in page}
        return there, max(there) if len(page) == PAGE else END

    def _list_one(self, folder: str, known: frozenset[str]) -> list[LandedFile]:
        """List the new objects of one folder. Raises OSError."""
        try:
            return self._land(self._list_whole(f"{folder}/", known))
        except OddKey:
            return self._land(self._ask_each(folder, known))

    def _land(self, found: Iterable[Found]) -> list[LandedFile]:
        files = list(found)
        empty = [path for path, size, _ in files if not size and (self.place, path) not in FOLDERS]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            shows = pool.map(self._only_shows_a_folder, empty)
            FOLDERS.update((self.place, path) for path, only in zip(empty, shows, strict=True) if only)
        return [
            LandedFile(path, size, identify(tag))
            for path, size, tag in files
            if size or (self.place, path) not in FOLDERS
        ]

    def look(self, files: Iterable[LandedFile]) -> Callable[[LandedFile], LandedFile | None]:
        """See `Landing.look`: a list for objects with close keys, else a request for each object, 16 at once."""
        asked = sorted({file.path for file in files})
        answers: dict[str, LandedFile | OSError | None] = {**self._list_among(asked)}
        rest = [path for path in asked if path not in answers]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers |= zip(rest, pool.map(self._ask_or, rest), strict=True)

        def tell(file: LandedFile) -> LandedFile | None:
            answer = answers[file.path]
            if isinstance(answer, OSError):
                raise answer
            return answer

        return tell

    def _list_among(self, asked: Sequence[str]) -> dict[str, LandedFile | None]:
        """Return the state of the first of these sorted paths, as far as lists reach. Each list begins at the next path.
        There are only as many lists as cost no more than one request for each path."""
        found: dict[str, LandedFile | None] = {}
        with suppress(OSError):
            for _ in range(len(asked) // DEAR):
                page, last = self._list_page(_before(asked[len(found)]))
                for path in asked[len(found) : bisect_right(asked, last)]:
                    one = page.get(path)
                    found[path] = LandedFile(path, one["size"], identify(_read_tag(one))) if one else None
                if len(found) == len(asked):
                    break
        return found

    def is_gone(self, path: str) -> bool:
        """See `Landing.is_gone`."""
        return self._ask_or(path) is None

    def is_away(self) -> bool:
        """See `Landing.is_away`: an unreachable bucket reports each object as absent. An empty bucket is not away."""
        try:
            self._list_top()
        except OSError:
            return True
        return False

    def list_left(self, folder: str) -> set[str]:
        """See `Landing.list_left`."""
        return {file.path for file in self._list_one(folder, frozenset())}

    def take(self, file: LandedFile, to: str) -> bool:
        """See `Landing.take`. A bucket has no conditional delete: an object that takes the place of the file between two
        requests is deleted, unless the bucket keeps versions. An object of more than 5 GB is not copied."""
        if (now := self._ask_or(file.path)) != file:
            if isinstance(now, OSError):
                raise now
            return now is None
        copied = bool(to) and not self.is_archived(file, to)
        with as_os_errors(f"{self.place}/{file.path}"):
            if copied:
                self.store.copy(file.path, to)
            if self._ask_or(file.path) != file:
                if copied:
                    self.store.delete(to)  # it may be a copy of the object that took its place
                return False
            self.store.delete(file.path)
        return True

    def is_archived(self, file: LandedFile, to: str) -> bool:
        """Whether the object is in the archive. Raises OSError; FileExistsError if `to` has different content."""
        if (there := self._ask(to)) is None:
            return False
        same = there["size"] == file.size  # ETags may differ for equal content
        if same:
            with self.find(file).open("rb") as mine, self.find(replace(file, path=to)).open("rb") as other:
                while (block := mine.read(BLOCK)) and same:
                    same = block == other.read(len(block))
        if not same:
            raise FileExistsError(explain_archived(to))
        return True

    def find(self, file: LandedFile) -> "BucketObject":
        """See `Landing.find`."""
        return BucketObject(self.place, file.path, file.size)

    def _list_whole(self, prefix: str, known: frozenset[str] = frozenset()) -> Iterator[Found]:
        """Yield the objects below a prefix that are neither known nor hidden. Raises OSError, and OddKey."""
        with as_os_errors(f"{self.place}/{prefix}"):
            for page in self.store.list(prefix or None, chunk_size=PAGE):
                for one in page:
                    if one["path"].startswith(prefix) and _is_new(one["path"], known):  # without the folder's marker
                        yield one["path"], one["size"], _read_tag(one)

    def _ask_each(self, folder: str, known: frozenset[str]) -> Iterator[Found]:
        for one in self._list_by_arrow(folder, recursive=True):
            path = one.path
            if one.is_file and _is_new(path, known) and not ODD.search(path) and (now := self._ask(path)):
                yield path, now["size"], _read_tag(now)

    def _list_top(self) -> tuple[list[str], list[str]]:
        """Return the folders and objects at the top."""
        try:
            with as_os_errors(self.place):
                found = self.store.list_with_delimiter()
                return list(found["common_prefixes"]), [one["path"] for one in found["objects"] if one["path"]]
        except OddKey:
            there = self._list_by_arrow("", recursive=False)
            return [one.path for one in there if not one.is_file], [one.path for one in there if one.is_file]

    def _list_by_arrow(self, folder: str, *, recursive: bool) -> list["_Named"]:
        chosen = fs.FileSelector(folder, allow_not_found=True, recursive=recursive)
        found = stores.open_files(self.place).get_file_info(chosen)
        return [_Named(one.path.lstrip("/"), one.type == fs.FileType.File) for one in found]

    def _ask(self, path: str) -> Any:
        """Return the metadata of the object; None if it is gone. Raises OSError."""
        try:
            with as_os_errors(f"{self.place}/{path}"):
                return self.store.head(path)
        except FileNotFoundError:
            return None

    def _ask_or(self, path: str) -> LandedFile | OSError | None:
        try:
            now = self._ask(path)
        except OSError as error:
            return error
        return LandedFile(path, now["size"], identify(_read_tag(now))) if now else None

    def _only_shows_a_folder(self, path: str) -> bool:
        """Whether the key ends in a slash: obstore drops the slash, and finds no object."""
        return self._ask(path) is None


@dataclass(frozen=True, slots=True)
class _Named:
    path: str
    is_file: bool


def identify(tag: object) -> int:
    """Return a number for an ETag. Different ETags of a key have different numbers."""
    return int.from_bytes(sha256(str(tag).encode()).digest()[:8]) >> 1


def _read_tag(said: Mapping[str, Any]) -> object:
    """Return the ETag; from a server without ETags, the second of the last change."""
    return said["e_tag"] or int(said["last_modified"].timestamp())


def _before(path: str) -> str:
    """Return a key shortly before the path: a list that begins after it includes the path. (obstore drops a slash at the
    end of the key; the full stop sorts right before the slash.)"""
    key = path[:-1]
    return f"{key[:-1]}." if key.endswith("/") else f"{key}." if path.endswith("/") else key


def _is_new(path: str, known: frozenset[str]) -> bool:
    return path not in known and not _is_hidden(path)


def _is_hidden(path: str) -> bool:
    return any(map(is_hidden, path.split("/")))
