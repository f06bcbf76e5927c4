"""The oracle: which records a file holds under a schema, which are good and with which values, which are bad and why.

Plain Python and pyarrow; nothing of rota, nothing of Spark. Law: a record is good if every declared column of it is.
"""

import bz2
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conservation import rules
from tests.conservation.canonical import comparable, fold, values_as
from tests.conservation.case import Case, File
from tests.conservation.jsons import BLANK, Lines, Row
from tests.conservation.rules import Bad, Unclear, Value

GOOD, BAD, EITHER = "good", "bad", "either"
BOM = b"\xef\xbb\xbf"
ENDS = re.compile(rb"\r\n|\n|\r")
SKIPPED = "".join(map(chr, range(33)))  # what Java's trim takes away


@dataclass(frozen=True, slots=True)
class Record:
    """`line` from 1, 0 where records span lines; `rows` are those that a good record is in the transform's eyes, or, of
    one that may be either, how many: all None."""

    line: int
    raw: str
    verdict: str
    rows: tuple[Row, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """The file fails as a whole, its partition stops before it."""

    why: str


class Oracle:
    """Reads the files of a case; what a text means it finds out once."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.lines = Lines(case.schema) if case.format == "json" else None
        self.csv = _Csv(case) if case.format == "csv" else None

    def read(self, file: File) -> list[Record] | Broken:
        """The records of the file in order; text in them is canonical, as that of a table (see `canonical`)."""
        if self.case.format == "parquet":
            return _parquet(self.case, file.data)
        try:
            data = _plain(file)
        except (OSError, EOFError, zlib.error) as error:
            return Broken(f"compression: {error}")
        if encoding := self.case.options.get("encoding"):
            data = data.decode(encoding).encode()
        data = data.removeprefix(BOM)
        if self.csv:
            spans = self.case.options.get("multiLine") == "true"
            return self.csv.read_spanning(data) if spans else self.csv.read_lines(data)
        assert self.lines
        return list(_json(self.lines, data))


def is_torn(file: File) -> bool:
    """Whether a carriage return is alone: for some that ends a line."""
    return bool(re.search(rb"\r(?!\n)", _plain(file)))


def _plain(file: File) -> bytes:
    if not file.data:
        return b""
    if file.name.endswith(".gz"):
        return gzip.decompress(file.data)
    return bz2.decompress(file.data) if file.name.endswith(".bz2") else file.data


def _lines(data: bytes) -> Iterator[tuple[int, str, bool]]:
    """Number, text, and whether it was UTF-8."""
    found = data.split(b"\n") if b"\r" not in data else ENDS.split(data)
    if not found[-1]:
        found.pop()
    for number, line in enumerate(found, 1):
        try:
            yield number, line.decode(), True
        except UnicodeDecodeError:
            yield number, line.decode(errors="replace"), False


def _json(reader: Lines, data: bytes) -> Iterator[Record]:
    for number, line, clean in _lines(data):
        if not line.strip(BLANK):
            continue
        if not clean:
            yield Record(number, line, BAD, (), "no UTF-8")
            continue
        if line.startswith("\ufeff") or "\0" in line[:4]:
            yield Record(number, line, EITHER, ((),))
            continue
        try:
            rows = reader.rows(line)
        except Bad as error:
            yield Record(number, line, BAD, (), str(error))
        except Unclear:
            yield Record(number, line, EITHER, ((),))
        else:
            if rows:  # `[]` is a list of no records
                yield Record(number, line, GOOD, tuple(rows))


class _Csv:
    """The grammar: a field is quoted as a whole or holds no quote; other records are of neither table for sure."""

    def __init__(self, case: Case) -> None:
        self.schema = case.schema
        self.sep = case.options.get("sep", ",")
        self.quote = case.options.get("quote", '"')
        self.null = case.options.get("nullValue", "")
        self.header = case.options.get("header") == "true"
        escape = case.options.get("escape", self.quote)
        sep, q, e = re.escape(self.sep), re.escape(self.quote), re.escape(escape)
        inside = f"(?:[^{q}{e}]|{e}.)*" if escape != self.quote else f"(?:[^{q}]|{q}{q})*"
        bare = f"(?:(?!{sep})[^{q}\r\n])*"
        self.field = re.compile(f"(?:{q}({inside}){q}|({bare}))({sep}|\r\n|\n|\r|$)", re.DOTALL)
        self.lost = re.compile(rf"{q}[{re.escape(SKIPPED)}]*(?:{sep})+\Z")
        self.escaped = re.compile(f"{e}([{q}{e}])" if escape != self.quote else f"{q}({q})")
        self.memos: list[dict[str, Value | Exception]] = [{} for _ in case.schema]
        self.rules = [rules.of_csv(c.type) for c in case.schema]

    def read_lines(self, data: bytes) -> list[Record] | Broken:
        records: list[Record] = []
        headed, before = not self.header, ""
        for number, line, clean in _lines(data):
            if not line.strip(SKIPPED) and (self.sep.strip(SKIPPED) or self.sep not in line):
                continue
            if not clean and headed:
                records.append(Record(number, line, BAD, (), "no UTF-8"))
                continue
            fields = None if self._follows_quoted(line, before) else self._fields(line)
            before = line
            if not headed:
                headed = True
                if not self._names(fields):
                    return Broken("header")
                continue
            records.append(self._record(number, line, fields))
        return records

    def read_spanning(self, data: bytes) -> list[Record] | Broken:
        """Records that may span lines: their ends are those outside of quotes. Raises ValueError for another grammar."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return Broken("no UTF-8")
        ends = re.search("\r\n|\n|\r", text)
        folded = ends[0] if ends else "\n"
        records: list[Record] = []
        at, headed, before = 0, not self.header, ""
        while at < len(text):
            start, said, mark = at, [], self.sep
            while mark == self.sep:
                found = self.field.match(text, at)
                if not found:
                    raise ValueError(f"no CSV at {at}: {text[at : at + 40]!r}")
                said.append(self._unquote(found, folded))
                at, mark = found.end(), found[3]
            raw = text[start : found.start(3)]
            if not raw:
                continue
            fields = None if self._is_misread(raw) or self._follows_quoted(raw, before) else said
            before = raw
            if not headed:
                headed = True
                if not self._names(fields):
                    return Broken("header")
                continue
            records.append(self._record(0, raw, fields))
        return records

    def _unquote(self, found: "re.Match[str]", folded: str = "\n") -> str | None:
        """A field's text; None for one that is not there."""
        if found[1] is None:
            return found[2] or None
        text = self.escaped.sub(r"\1", found[1])
        return text.replace(folded, "\n") if folded != "\n" else text

    def _fields(self, line: str) -> list[str | None] | None:
        """The fields of a line; None where it is of another grammar."""
        if self._is_misread(line):
            return None
        if self.quote not in line:
            return [field or None for field in line.split(self.sep)]
        fields: list[str | None] = []
        at, mark = 0, self.sep
        while mark == self.sep:
            found = self.field.match(line, at)
            if not found or found[3] not in (self.sep, ""):
                return None
            fields.append(self._unquote(found))
            at, mark = found.end(), found[3]
        return fields

    def _is_misread(self, raw: str) -> bool:
        """Whether, with a long separator, Spark may lose a NUL, or take an empty last field behind a quoted one for quoted,
        too, where only empty ones are between them."""
        return len(self.sep) > 1 and ("\0" in raw or bool(self.lost.search(raw)))

    def _follows_quoted(self, line: str, before: str) -> bool:
        """Whether, with a long separator, Spark may take an empty last field for quoted, as the one before it was."""
        only = not line.replace(self.sep, "").strip(SKIPPED)
        return len(self.sep) > 1 and only and before.rstrip(SKIPPED).endswith(self.quote)

    def _names(self, fields: list[str | None] | None) -> bool:
        return [(f or "").lower() for f in fields or ()] == [c.name.lower() for c in self.schema]

    def _record(self, number: int, raw: str, fields: list[str | None] | None) -> Record:
        if fields is None:
            return Record(number, raw, EITHER, ((),))
        if len(fields) != len(self.schema):
            return Record(number, raw, BAD, (), "number of fields")
        try:
            row = tuple(map(self._value, range(len(fields)), fields))
        except Bad as error:
            return Record(number, raw, BAD, (), str(error))
        except Unclear:
            return self._doubtful(number, raw, fields)
        return Record(number, raw, GOOD, (row,))

    def _doubtful(self, number: int, raw: str, fields: list[str | None]) -> Record:
        """Bad all the same if another field is."""
        for at, field in enumerate(fields):
            try:
                self._value(at, field)
            except Bad as error:
                return Record(number, raw, BAD, (), str(error))
            except Unclear:
                pass
        return Record(number, raw, EITHER, ((),))

    def _value(self, at: int, field: str | None) -> Value:
        if field is None or field == self.null:
            return None
        memo = self.memos[at]
        if field not in memo:
            try:
                memo[field] = fold(self.rules[at](field))
            except (Bad, Unclear) as error:
                memo[field] = error
        value = memo[field]
        if isinstance(value, Exception):
            raise value
        return value


def _parquet(case: Case, data: bytes) -> list[Record] | Broken:
    """Every row is a good record, or the file as a whole is broken."""
    try:
        table = pq.ParquetFile(io.BytesIO(data)).read()
    except (OSError, pa.ArrowException) as error:
        return Broken(f"no Parquet: {error}")
    there = {name.lower(): name for name in table.column_names}
    columns: list[list[Value]] = []
    for column in case.schema:
        if column.name.lower() not in there:
            if case.options.get("mergeSchema") == "true":
                columns.append([None] * table.num_rows)
                continue
            return Broken(f"no column {column.name}")
        found = table.column(there[column.name.lower()])
        if table.num_rows and not comparable(found.type, column.type):
            return Broken(f"column {column.name} is {found.type}")
        columns.append(values_as(found, column.type))
    return [Record(0, "", GOOD, (row,)) for row in zip(*columns, strict=True)]
