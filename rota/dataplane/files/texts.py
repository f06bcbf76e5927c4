"""Bound the number of records in landed text from its bytes, without a parse, and find text that a reader would misread.

Law: `count_most` counts only UTF-8. A line of JSON holds at most one object, and a parser refuses anything else on the
line. Each line of CSV has well-formed quotes (`quoting`). Blank lines are not counted.

Law: `count_most` is at least the number of records that Spark's reader returns, with the bad ones. It exceeds that number
only by lines of which Spark's reader returns nothing. A job that reads exactly so many good records has read all records,
and none was bad.

In doubt `count_most` returns None, and each line is parsed as a value (`values`): the job costs half as much again. The
count costs a hundredth of a job, or a tenth if JSON is nested.
"""

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from io import SEEK_END, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rota.dataplane.files.landing import LandedBytes
from rota.dataplane.formats import lines
from rota.dataplane.formats.options import find_encoding
from rota.dataplane.formats.quoting import Dialect

T = TypeVar("T")
READ = 1 << 19  # bytes at a time: they stay in the processor's cache, and threads wait for each other less often
LONGEST = 1 << 22  # bytes of a line; a longer one is in doubt
DEEPEST = 8  # levels of values within the first; a deeper one is in doubt
PACKED = ".gz"
BLOCKS = (".snappy", ".lz4")  # suffixes of Hadoop's own formats
PLAIN = ("", ".csv", ".json", ".jsonl", ".ndjson", ".txt", ".log")
UNSURE = {
    "multiline",
    "linesep",
    "encoding",
    "charset",
    "comment",
}  # options under which other bytes end a line, or hide it
SURE = {"multiline": "false", "encoding": "utf-8", "charset": "utf-8"}  # Spark's defaults, which are harmless
BLANK = b" \t\r"  # a line of these holds no record
CONTROLS = bytes(range(33))
ARCHIVES = {
    b"\xfd7zXZ\0": ".xz",
    b"PK\3\4": ".zip",
    b"\x1f\x8b": ".gz",
    b"BZh": ".bz2",
    b"(\xb5/\xfd": ".zst",
    b"7z\xbc\xaf": ".7z",
}


def _nest(inside: bytes, depth: int) -> bytes:
    """Return the pattern of an object or a list of `inside`, and of objects and lists nested down to this depth."""
    deeper = b"|" + _nest(inside, depth - 1) if depth else b""
    return rb"[{\[](?:" + inside + deeper + rb")*[}\]]"


def _lines_of(value: bytes) -> bytes:
    """Return the pattern of lines, each of which is such a value, or has `}` or `]` only as its last character."""
    line = rb"(?:[ \t]*" + value + rb"[ \t]*|[^}\]\r\n]*[}\]]?)\r?"
    return rb"\A(?:" + line + rb"\n)*" + line + rb"\z"


STRING = rb'"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*"'
VALUE = _nest(
    rb"[ \t,:0-9A-Za-z+.\-]|" + STRING, DEEPEST
)  # no single quote, and no sign of a comment, outside of a string
OBJECTS = _lines_of(VALUE.replace(rb"[{\[]", rb"\{", 1))


def count_most(files: Sequence[LandedBytes], format: str, options: Mapping[str, str]) -> int | None:
    """Return an upper bound of the records that Spark's reader finds in these files; None in doubt."""
    if _is_unsure(options):
        return None
    count = partial(
        _count_lines, dialect=Dialect.of(options) if format == "csv" else None, header=has_header(format, options)
    )
    try:
        return sum(_map(count, files))
    except _Doubt:
        return None


def _count_lines(file: LandedBytes, dialect: Dialect | None, header: bool) -> int:
    """Count the lines of a file of CSV in this dialect, or of JSON. Raises _Doubt."""
    found = 0
    for block in _read(file):
        if not is_text(block) or (not dialect and b"\0" in block):  # JSON with a NUL may be UTF-16
            raise _Doubt
        ended = None if dialect else count_ended(block)
        if ended is None:
            if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
                raise _Doubt
            if not (dialect.is_clean(block) if dialect else is_clean(block)):
                raise _Doubt
            ended = _count_shown(block, dialect.sep.encode() if dialect and dialect.is_blank else None)
        found += ended
    return max(0, found - header)


def is_text(block: bytes) -> bool:
    """Whether bytes are UTF-8."""
    if block.isascii():
        return True
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def count_ended(block: bytes) -> int | None:
    """Return the number of lines if each ends with its only `}` and has no `]` or carriage return; else None. Such lines
    are not blank, and are clean (`is_clean`): this check is the cheaper one."""
    import numpy as np  # `rota status` opens sources, and needs no numpy

    if b"\r" in block or b"]" in block or block[:1] == b"\n" or block[-1:] != b"\n":
        return None
    codes = np.frombuffer(block, np.uint8)
    ends = codes[1:] == ord("\n")
    return None if (ends != (codes[:-1] == ord("}"))).any() else int(np.count_nonzero(ends))


def _count_shown(block: bytes, sep: bytes | None = None) -> int:
    """Count the lines that are not blank. Raises _Doubt for a line of blanks and `sep`, which Spark's reader leaves out."""
    import numpy as np  # `rota status` opens sources, and needs no numpy

    codes = np.frombuffer(block, np.uint8)
    ends = codes == ord("\n")
    if (ends[:-1] & (codes[1:] <= ord(" "))).any() or block[:1] <= b" ":  # then a line may be blank
        rows = block.split(b"\n")
        if sep and any(sep in line and not line.strip(CONTROLS) for line in rows):
            raise _Doubt
        return sum(1 for line in rows if line.strip(BLANK))
    return int(np.count_nonzero(ends)) + (block[-1:] != b"\n")


def is_clean(block: bytes) -> bool:
    """Whether each line surely holds at most one object: each ends with its first `}`, or matches `OBJECTS`."""
    import numpy as np  # `rota status` opens sources, and needs no numpy

    codes = np.frombuffer(block, np.uint8)
    closing = (codes[:-1] | ord(" ")) == ord("}")  # `]` and `}` differ in this bit only
    closing &= codes[1:] != ord("\n")
    return not closing.any() or bool(pc.match_substring_regex(pa.scalar(block, pa.large_binary()), OBJECTS).as_py())


class _Doubt(Exception):
    """The bytes alone do not bound the number of records."""


def _is_unsure(options: Mapping[str, str]) -> bool:
    given = {name.lower(): text.lower() for name, text in options.items()}
    return any(given[name] != SURE.get(name) for name in UNSURE & given.keys())


def _map(look: Callable[[LandedBytes], T], files: Sequence[LandedBytes]) -> Iterator[T]:
    """Yield the result of `look` for each file, in order. Objects of a bucket are read by eight threads. A disk gets two:
    more wait for Python's lock, and eight took twice as long."""
    with ThreadPoolExecutor(2 if all(isinstance(one, Path) for one in files) else 8) as pool:
        yield from pool.map(look, files)


def _read(file: LandedBytes) -> Iterator[bytes]:
    """Yield the bytes of the file in blocks of whole lines. Raises _Doubt if that is not possible."""
    suffix = find_suffix(file.name)
    if suffix != PACKED and suffix not in PLAIN:
        raise _Doubt
    rest = b""
    try:
        with file.open("rb") as raw, gzip.open(raw) if suffix == PACKED else raw as opened:
            while found := opened.read(READ):
                end = found.rfind(b"\n") + 1
                if end:
                    yield b"".join((rest, memoryview(found)[:end]))
                    rest = b""
                rest += found[end:]
                if len(rest) > LONGEST:
                    raise _Doubt
    except (OSError, EOFError, zlib.error):
        raise _Doubt from None
    if rest:
        yield rest


def has_header(format: str, options: Mapping[str, str]) -> bool:
    """Whether the first line of each file names the columns."""
    return format == "csv" and {n.lower(): text.lower() for n, text in options.items()}.get("header") == "true"


def find_suffix(path: str) -> str:
    """Return the last suffix, by which Spark finds the compression."""
    suffix = Path(path).suffix
    return suffix if suffix[1:].isalnum() else ""


def explain_misnamed(landed: LandedBytes) -> str:
    """Return why Spark must not open a `.snappy` or `.lz4` file; empty if it may. Under these names Spark expects Hadoop's
    own format: a length, and the length of a block, for which Spark allocates memory unchecked. A file of another program
    has any number there, and the Spark process dies."""
    if find_suffix(landed.name).lower() not in BLOCKS:
        return ""
    with landed.open("rb") as file:
        head, size = file.read(8), file.seek(0, SEEK_END)
    if not head or (len(head) == 8 and 8 + int.from_bytes(head[4:], "big") <= size):
        return ""
    kind = find_suffix(landed.name)[1:]
    return f"is not {kind} as Hadoop writes it, and Spark reads no other. Land it as .gz, .bz2 or .zst"


def explain_archive(file: LandedBytes) -> str:
    """Return which archive a file is that Spark would read as text; empty if it is none."""
    suffix = find_suffix(file.name).lower()
    if suffix not in (*PLAIN, PACKED, ".xz", ".zip", ".7z"):
        return ""
    try:
        with file.open("rb") as raw, gzip.open(raw) if suffix == PACKED else raw as opened:
            head = opened.read(8)
    except (OSError, EOFError, zlib.error):
        return ""
    kind = next((name for magic, name in ARCHIVES.items() if head.startswith(magic)), "")
    within = " within .gz" if suffix == PACKED else ""
    step = "Land it unpacked, or packed once as .gz, .bz2 or .zst under that suffix"
    return f"is a {kind} archive{within}, which Spark would read as text. {step}" if kind else ""


def explain_ill(file: LandedBytes, format: str, options: Mapping[str, str]) -> str:
    """Return why a file whose records span lines is no text, or where its quotes are ill-formed; empty if neither."""
    encoding = find_encoding(options) or "utf-8"
    try:
        with _open(file) as opened:
            text = opened.read().decode(encoding)
    except UnicodeError as error:
        return f"has bytes that are not {encoding} ({error}). Give the option encoding, or land it in that"
    except (OSError, EOFError, zlib.error):
        return ""  # Spark reports the file
    dialect = Dialect.of(options)
    if format != "csv" or dialect.quote not in text or (at := dialect.find_ill(text.removeprefix("\ufeff"))) < 0:
        return ""
    return f"has an ill-formed record that begins in line {text.count(chr(10), 0, at) + 1}: {lines.ILL}"


@contextmanager
def _open(file: LandedBytes) -> Iterator[BinaryIO]:
    opened: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(find_suffix(file.name).lower(), lambda raw: raw)
    with file.open("rb") as raw:
        yield opened(raw)


def read_lines(file: LandedBytes, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of a file. A file that is cut off, or compressed in another way, ends early: its bad record is kept
    without a line number."""
    errors, named = ("surrogateescape", "utf-8-sig") if encoding == "utf-8" else ("replace", encoding)
    try:
        with _open(file) as opened, TextIOWrapper(opened, named, errors, "\n") as text:
            for line in text:
                yield line.rstrip("\r\n")
    except (OSError, EOFError, ValueError, zlib.error):
        return
