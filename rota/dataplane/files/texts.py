"""What the bytes of landed text say without a parse: that each line holds one value, and how many records there are at most.

Law: of files that are not among `list_doubtful`, `lines.find_joined` finds no line, whatever the schema: each line has no
other `}` or `]` than the last of its characters, or is one `VALUE`, in which everything has its place but for what a parser
refuses.

Law: `count_most` is no less than the records that Spark's reader makes of the files, the bad ones too; and no more, but for
lines of which Spark's reader takes nothing. Who reads that many good records has read all, and none of them was bad.

In doubt they say no and None, and Spark is asked: half of what a job costs. Bytes cost a hundredth of it, or a tenth where
JSON has values within values.
"""

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rota.dataplane.files.landing import LandedBytes
from rota.dataplane.files.staging import find_suffix

T = TypeVar("T")
READ = 1 << 19  # bytes at a time: they stay in the processor's cache, and threads wait for each other less often
LONGEST = 1 << 22  # bytes of a line; a longer one is in doubt
DEEPEST = 8  # levels of values within the first; a deeper one is in doubt
PACKED = ".gz"
PLAIN = ("", ".csv", ".json", ".jsonl", ".ndjson", ".txt", ".log")
UNSURE = {
    "multiline",
    "linesep",
    "encoding",
    "charset",
    "comment",
}  # options under which other bytes end a line, or hide it
SURE = {"multiline": "false", "encoding": "utf-8", "charset": "utf-8"}  # but for what Spark takes by itself
BLANK = b" \t\r"  # a line of these holds no record


def _nest(inside: bytes, depth: int) -> bytes:
    """An object or a list that holds what is `inside`, and others of its kind down to this depth."""
    deeper = b"|" + _nest(inside, depth - 1) if depth else b""
    return rb"[{\[](?:" + inside + deeper + rb")*[}\]]"


def _lines_of(value: bytes) -> bytes:
    """Lines each of which is such a value, or has no other `}` or `]` than the last of its characters."""
    line = rb"(?:[ \t]*" + value + rb"[ \t]*|[^}\]\r\n]*[}\]]?)\r?"
    return rb"\A(?:" + line + rb"\n)*" + line + rb"\z"


STRING = rb'"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*"'
VALUE = _nest(
    rb"[ \t,:0-9A-Za-z+.\-]|" + STRING, DEEPEST
)  # no single quote, and no sign of a comment, outside of a string
VALUES = _lines_of(VALUE)
OBJECTS = _lines_of(VALUE.replace(rb"[{\[]", rb"\{", 1))


def list_doubtful(files: Sequence[LandedBytes], options: Mapping[str, str]) -> list[LandedBytes]:
    """The files of which it is not sure that no line of JSON holds more than one value, as Spark's reader reads it."""

    def is_sure(file: LandedBytes) -> bool:
        try:
            return all(is_clean(block) for block in _read(file))
        except _Doubt:
            return False

    if _is_unsure(options):
        return list(files)
    return [file for file, sure in zip(files, _map(is_sure, files), strict=True) if not sure]


def count_most(files: Sequence[LandedBytes], format: str, options: Mapping[str, str]) -> int | None:
    """How many records these files hold at most, as Spark's reader reads them; None in doubt."""
    if _is_unsure(options):
        return None
    header = any(text.lower() == "true" for name, text in options.items() if name.lower() == "header")
    count = partial(_count_lines, json=format == "json", header=format == "csv" and header)
    try:
        return sum(_map(count, files))
    except _Doubt:
        return None


def _count_lines(file: LandedBytes, json: bool, header: bool) -> int:
    found = 0
    for block in _read(file):
        ended = count_ended(block) if json else None
        if ended is None:
            if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
                raise _Doubt
            if json and not is_clean(block, OBJECTS):
                raise _Doubt
            ended = _count_shown(block)
        found += ended
    return max(0, found - header)


def count_ended(block: bytes) -> int | None:
    """The lines, if each of them ends with its only `}` and none has a `]` or a carriage return; else None. So no one is
    blank, and each is as `is_clean` wants it: that costs less to see than either."""
    import numpy as np  # `rota status` opens sources, and does without

    if b"\r" in block or b"]" in block or block[:1] == b"\n" or block[-1:] != b"\n":
        return None
    codes = np.frombuffer(block, np.uint8)
    ends = codes[1:] == ord("\n")
    return None if (ends != (codes[:-1] == ord("}"))).any() else int(np.count_nonzero(ends))


def _count_shown(block: bytes) -> int:
    """The lines that are not blank."""
    import numpy as np  # `rota status` opens sources, and does without

    codes = np.frombuffer(block, np.uint8)
    ends = codes == ord("\n")
    if (ends[:-1] & (codes[1:] <= ord(" "))).any() or block[:1] <= b" ":  # then a line may be blank
        return sum(1 for line in block.split(b"\n") if line.strip(BLANK))
    return int(np.count_nonzero(ends)) + (block[-1:] != b"\n")


def is_clean(block: bytes, wanted: bytes = VALUES) -> bool:
    """Whether whole lines hold at most one value each for sure: most end with their first `}` or `]`, others as `wanted`."""
    import numpy as np  # `rota status` opens sources, and does without

    codes = np.frombuffer(block, np.uint8)
    closing = (codes[:-1] | ord(" ")) == ord("}")  # this bit alone parts `]` from `}`
    closing &= codes[1:] != ord("\n")
    return not closing.any() or bool(pc.match_substring_regex(pa.scalar(block, pa.large_binary()), wanted).as_py())


class _Doubt(Exception):
    """Bytes alone do not tell."""


def _is_unsure(options: Mapping[str, str]) -> bool:
    given = {name.lower(): text.lower() for name, text in options.items()}
    return any(given[name] != SURE.get(name) for name in UNSURE & given.keys())


def _map(look: Callable[[LandedBytes], T], files: Sequence[LandedBytes]) -> Iterator[T]:
    """What `look` gives of each, in order. Objects are waited for; on a disk more than two threads wait for each other's
    Python: eight took twice as long."""
    with ThreadPoolExecutor(2 if all(isinstance(one, Path) for one in files) else 8) as pool:
        yield from pool.map(look, files)


def _read(file: LandedBytes) -> Iterator[bytes]:
    """The bytes of the file in blocks of whole lines. Raises _Doubt where it cannot be read so."""
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


def read_lines(file: LandedBytes) -> Iterator[str]:
    """The lines of a file. One that is packed in another way, or half, ends early: the record is kept, its line is not
    known."""
    opened: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(find_suffix(file.name).lower(), lambda raw: raw)
    try:
        with file.open("rb") as raw, TextIOWrapper(opened(raw), "utf-8-sig", "replace", "\n") as text:
            for line in text:
                yield line.rstrip("\r\n")
    except (OSError, EOFError, ValueError, zlib.error):
        return
