"""A landing folder in a bucket: a prefix of its keys.

Law: an object is there whole or not at all, so nobody waits until it rests. It is the same object while its size and its
ETag are the same; `modified` is a number made of the ETag. Whatever lists it, looks at it or reads it sees the newest one.

Law: names come late and out of order, so each look lists all keys of a partition, a thousand a request: to begin behind the
newest name that is known would leave out for ever what came late with an earlier one.

Law: what begins with `_` or `.`, also a part of a key, is hidden; a key that ends in a slash and has no bytes is what shows
a folder. Any other that is not read has a reason. Of a prefix with a key that obstore refuses to list, Arrow lists the
names, and each new object is asked for its ETag.
"""

import errno
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

from pyarrow import fs

from rota import stores
from rota.dataplane.files import listing
from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.files.listed import Listed
from rota.errors import ConfigError, EnvironmentFailed, printable
from rota.ledger.values import Ranges

if TYPE_CHECKING:
    from obstore.store import S3Store

PAGE = 1000  # keys of an answer
DEAR = 16  # what an answer with a list of keys costs, in answers of one
BLOCK = 1 << 20  # bytes of a stream that are here at a time
ODD = re.compile(r"[\x00-\x1f\x7f]|//|/$")
WHY_ODD = "its key has a control character, or a slash too many; land it under another"
Found = tuple[str, int, object]  # key, bytes, ETag


@dataclass(frozen=True, slots=True)
class BucketLanding:
    """The objects below `place`, `s3://bucket/prefix`. See `Landing`."""

    place: str
    at_once: int = 16

    @property
    def store(self) -> "S3Store":
        """What asks the bucket."""
        return stores.open_objects(self.place)

    def find_place(self) -> str:
        """See `Landing.find_place`: a prefix is there once its bucket is."""
        try:
            self._list_top()
        except OSError as error:
            if "NoSuchBucket" in str(error):
                raise ConfigError(f"{self.place}: there is no such bucket. Make it, or mend files(...)") from None
            raise EnvironmentFailed(f"{self.place} cannot be listed ({error}). Check its endpoint and rights") from None
        return self.place

    def list_folders(self) -> Sequence[str]:
        """See `Landing.list_folders`: the first parts of all keys, unless they end there."""
        return [one for one in self._list_top()[0] if not _is_hidden(one) and not ODD.search(one)]

    def list_ignored(self) -> Sequence[tuple[str, str]]:
        """See `Landing.list_ignored`."""
        found = {path: listing.ASIDE for path in self._list_top()[1] if not _is_hidden(path)}
        try:
            for _ in self._list_whole(""):
                pass
        except _Odd:
            odd = (one.path for one in self._list_by_arrow("", recursive=True) if one.is_file)
            found |= {printable(path): WHY_ODD for path in odd if ODD.search(path) and not _is_hidden(path)}
        return list(found.items())

    def list_rested(self, folder: str, known: frozenset[str], settle: float, now: float) -> Iterator[LandedFile]:
        """See `Landing.list_rested`: an object needs no rest."""
        del settle, now
        try:
            found = list(self._list_whole(f"{folder}/", known))
        except _Odd:
            found = list(self._ask_each(folder, known))
        for path, size, tag in found:
            if size or not self._only_shows_a_folder(path):
                yield LandedFile(path, size, identify(tag))

    def look(self, files: Iterable[LandedFile]) -> Callable[[LandedFile], LandedFile | None]:
        """See `Landing.look`: of many in one folder by a list of them, else of each by itself, all at once."""
        asked = sorted({file.path for file in files})
        answers: dict[str, LandedFile | OSError | None] = {}
        for _, some in groupby(asked, lambda path: path.rpartition("/")[0]):
            answers |= self._list_among(list(some))
        rest = [path for path in asked if path not in answers]
        with ThreadPoolExecutor(self.at_once) as pool:
            answers |= zip(rest, pool.map(self._ask_or, rest), strict=True)

        def tell(file: LandedFile) -> LandedFile | None:
            answer = answers[file.path]
            if isinstance(answer, OSError):
                raise answer
            return answer

        return tell

    def _list_among(self, asked: list[str]) -> dict[str, LandedFile | None]:
        """Those of a folder up to which a list came, in order; none where it is dearer than to ask for each."""
        found, last, most = dict[str, LandedFile | None](), "", len(asked) // DEAR
        if not most:
            return {}
        with suppress(OSError, _Odd), _told(self.place):
            pages = self.store.list(f"{asked[0].rpartition('/')[0]}/", offset=asked[0][:-1], chunk_size=PAGE)
            for page in islice(chain(pages, [[]]), most):
                there = {one["path"]: one for one in page}
                for path in there.keys() & set(asked):
                    found[path] = LandedFile(path, there[path]["size"], identify(_read_tag(there[path])))
                last = max(there) if len(there) == PAGE else asked[-1]
                if last >= asked[-1]:
                    break
        return {path: found.get(path) for path in asked if path <= last}

    def is_gone(self, path: str) -> bool:
        """See `Landing.is_gone`."""
        return self._ask_or(path) is None

    def is_away(self) -> bool:
        """See `Landing.is_away`: a bucket that is away says of each object that there is none. One that is there may well
        have no object any more."""
        try:
            self._list_top()
        except OSError:
            return True
        return False

    def list_left(self, folder: str) -> set[str]:
        """See `Landing.list_left`."""
        return {file.path for file in self.list_rested(folder, frozenset(), 0.0, 0.0)}

    def take(self, file: LandedFile, to: str) -> bool:
        """See `Landing.take`. No bucket deletes what is still the same alone: what somebody puts in its place between two
        requests of ours goes, unless the bucket keeps versions. An object of more than 5 GB is not copied."""
        if (now := self._ask_or(file.path)) != file:
            if isinstance(now, OSError):
                raise now
            return now is None
        with _told(f"{self.place}/{file.path}"):
            if to:
                self.store.copy(file.path, to)
            if self._ask_or(file.path) != file:
                return False
            self.store.delete(file.path)
        return True

    def find(self, file: LandedFile) -> "BucketObject":
        """See `Landing.find`."""
        return BucketObject(self.place, file.path, file.size)

    @contextmanager
    def show(self, attempt: str, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges) -> Iterator[Listed]:
        """See `Landing.show`: a list of them."""
        del attempt
        place = f"s3a://{self.place.partition('://')[2]}"
        yield Listed(place, {p: {o: files[p][o].path for o in range(*of)} for p, of in ranges.items()})

    def _list_whole(self, prefix: str, known: frozenset[str] = frozenset()) -> Iterator[Found]:
        """The objects that are neither known nor hidden. Raises OSError, and _Odd."""
        with _told(f"{self.place}/{prefix}"):
            for page in self.store.list(prefix or None, chunk_size=PAGE):
                for one in page:
                    if one["path"] not in known and not _is_hidden(one["path"]):
                        yield one["path"], one["size"], _read_tag(one)

    def _ask_each(self, folder: str, known: frozenset[str]) -> Iterator[Found]:
        for one in self._list_by_arrow(folder, recursive=True):
            path = one.path
            new = one.is_file and path not in known and not _is_hidden(path) and not ODD.search(path)
            if new and (now := self._ask(path)):
                yield path, now["size"], _read_tag(now)

    def _list_top(self) -> tuple[list[str], list[str]]:
        """Folders and objects at the top."""
        try:
            with _told(self.place):
                found = self.store.list_with_delimiter()
                return list(found["common_prefixes"]), [one["path"] for one in found["objects"] if one["path"]]
        except _Odd:
            there = self._list_by_arrow("", recursive=False)
            return [one.path for one in there if not one.is_file], [one.path for one in there if one.is_file]

    def _list_by_arrow(self, folder: str, *, recursive: bool) -> list["_Named"]:
        chosen = fs.FileSelector(folder, allow_not_found=True, recursive=recursive)
        found = stores.open_files(self.place).get_file_info(chosen)
        return [_Named(one.path.lstrip("/"), one.type == fs.FileType.File) for one in found]

    def _ask(self, path: str) -> Any:
        """What the bucket says of the object; None where it is gone. Raises OSError."""
        try:
            with _told(f"{self.place}/{path}"):
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
        """Its key has a slash at the end, which obstore drops."""
        return self._ask(path) is None


@dataclass(frozen=True, slots=True)
class _Named:
    path: str
    is_file: bool


class _Odd(Exception):
    """A key that obstore refuses is among those that were asked for."""


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Raises OSError, of `what`, for whatever obstore raises; _Odd for a key that it refuses."""
    from obstore.exceptions import BaseError, InvalidPathError

    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", what) from None
    except InvalidPathError:
        raise _Odd from None
    except BaseError as error:
        said = str(error).partition("\n\nDebug source")[0].partition(" in ")
        raise OSError(errno.EIO, " ".join(f"{said[0]}: {said[2]}".split())[:300], what) from None


def identify(tag: object) -> int:
    """The number for an ETag: two objects of one key that have different ones have different numbers."""
    return int.from_bytes(sha256(str(tag).encode()).digest()[:8]) >> 1


def _read_tag(said: Mapping[str, Any]) -> object:
    """The ETag; a server without one has the second in which the object was made."""
    return said["e_tag"] or int(said["last_modified"].timestamp())


def _is_hidden(path: str) -> bool:
    return any(part.startswith(listing.HIDDEN) for part in path.split("/"))


@dataclass(frozen=True, slots=True)
class BucketObject:
    """An object that can be opened: see `LandedBytes`."""

    place: str
    path: str
    size: int

    @property
    def name(self) -> str:
        """See `LandedBytes.name`."""
        return self.path.rpartition("/")[2]

    def open(self, mode: Literal["rb"] = "rb", /) -> BinaryIO:
        """See `LandedBytes.open`: one request, for the whole of it; or one for each read behind a seek."""
        del mode
        return cast(BinaryIO, io.BufferedReader(_Reader(self), BLOCK))


class _Reader(io.RawIOBase):
    """A stream from the beginning, until somebody seeks."""

    def __init__(self, of: BucketObject) -> None:
        self._of, self._at, self._blocks, self._rest = of, 0, cast("Iterator[Any] | None", None), memoryview(b"")
        self._sought = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, to: int, whence: int = io.SEEK_SET, /) -> int:
        at = to + (0, self._at, self._of.size)[whence]
        self._sought, self._at = self._sought or at != self._at, at
        return at

    def readinto(self, into: Any, /) -> int:
        room = memoryview(into).cast("B")
        with _told(f"{self._of.place}/{self._of.path}"):
            some = self._read_range(len(room)) if self._sought else self._read_on(len(room))
        room[: len(some)] = some
        self._at += len(some)
        return len(some)

    def _read_range(self, count: int) -> memoryview:
        end = min(self._at + count, self._of.size)
        if end <= self._at:
            return memoryview(b"")
        return memoryview(stores.open_objects(self._of.place).get_range(self._of.path, start=self._at, end=end))

    def _read_on(self, count: int) -> memoryview:
        if self._blocks is None:
            self._blocks = iter(stores.open_objects(self._of.place).get(self._of.path).stream(min_chunk_size=BLOCK))
        if not self._rest:
            self._rest = memoryview(next(self._blocks, b""))
        some, self._rest = self._rest[:count], self._rest[count:]
        return some
