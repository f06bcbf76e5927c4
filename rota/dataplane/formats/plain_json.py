"""Parse plain JSON values with Arrow, several times as fast as Spark's `from_json`. The module is sent to Spark's workers
as code: it needs pyarrow there, and nothing of rota.

Law: `Parser` returns the columns that `values.parse` returns for the same values, and none of the values is bad. Otherwise
it raises `NotPlain`, and Spark parses the values. It raises `NotPlain` for each value that Arrow treats differently:

| value | Spark's parser | Arrow's parser |
|---|---|---|
| no object, a blank, two objects, a list of objects | bad, or the object in the list | an error, or another number of rows |
| a byte order mark, blanks around the object | skipped | an error, or skipped |
| bytes that are not UTF-8 | bad | accepted in a field that is not declared |
| a number, an object or a list in a text column | its text | an error |
| a text in a column of numbers | a number if it is "NaN" or "Infinity", else bad | an error |
| 1.0 or 1e2 in a column of whole numbers | bad | an error |
| a number beyond the range of a double | Infinity | an error |
| -0 in a column of doubles | 0.0 | -0.0 |
| NaN, Infinity, Inf | all but Inf | all |
| a field twice | the last value | an error if the field is declared |
| half of a surrogate pair | a question mark | an error |
| a time or date in another form than those of `FORMS` | read, or bad | read, or an error |
| 1,000 levels, a number of 1,000 digits, a name of 50,000 characters | bad | read |
"""

import re
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

NOT_PLAIN = "rota: a value is not plain JSON"  # in the error of a task
LONG = 900  # bytes; a shorter value exceeds no limit of Spark's parser
NUMBER = re.compile(rb"[-+.\deE]{900}")
NO_NUMBER = re.compile(rb"[:\[,]\s*-?(?:NaN|Inf(?:inity)?)\s*[,\]}]")
YEAR = r"(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])"
DAY = rf"{YEAR}-\d\d-\d\d"
TIME = r"\d\d:\d\d:\d\d(?:\.\d{1,6})?"
FORMS = {  # Arrow's type -> the texts that both parsers read, and alike
    pa.date32(): rf"^{DAY}$",
    pa.timestamp("us", "UTC"): rf"^{DAY}[T ]{TIME}(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)$",
    pa.timestamp("us"): rf"^{DAY}[T ]{TIME}$",
}
Batches = Iterable[pa.RecordBatch]
PLAIN = (pa.int64(), pa.int32(), pa.int16(), pa.float64(), pa.string(), pa.bool_())


class NotPlain(ValueError):
    """Spark has to parse the values."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{NOT_PLAIN}: {why}")


def can_read(kind: pa.DataType, nested: bool = False) -> bool:
    """Return whether the parser reads a column of this type."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(can_read(kind.field(n).type, True) for n in range(kind.num_fields))
    if pa.types.is_list(kind):
        return can_read(kind.value_type, True)
    return kind in PLAIN or (kind in FORMS and not nested)


class Parser:
    """Parses values into the columns `kinds`, each of which it can read."""

    def __init__(self, kinds: pa.Schema) -> None:
        self.kinds = kinds
        read = pa.schema([one.with_type(pa.string()) if one.type in FORMS else one for one in kinds])
        self._options = json.ParseOptions(explicit_schema=read, unexpected_field_behavior="ignore")

    def parse(self, values: pa.Array) -> list[pa.Array]:
        """Return the columns of the values, an array of binaries. Raises: NotPlain."""
        if not len(values):
            return [pa.array([], one.type) for one in self.kinds]
        if values.null_count:
            raise NotPlain("a record has no value")
        lines = _join_lines(values)
        text = lines.to_pybytes()
        check_lines(text, len(values))
        if pc.max(pc.binary_length(values)).as_py() >= LONG:
            check_limits(values.to_pylist())
        whole = json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            found = json.read_json(pa.BufferReader(lines), whole, self._options)
        except pa.ArrowInvalid as error:
            raise NotPlain(str(error)) from None
        if len(found) != len(values):
            raise NotPlain("a value is not one object")
        return [convert(found.column(one.name).combine_chunks(), one.type) for one in self.kinds]


def make_reader(read: Callable[[Batches], Batches], kinds: pa.Schema) -> Callable[[Batches], Batches]:
    """Return the function for `mapInArrow` that reads batches with `read`, and parses their first column into `kinds`.

    It raises NotPlain for a value that Spark has to parse.
    """

    def parse(batches: Batches) -> Batches:
        parser = Parser(kinds)
        for batch in read(batches):
            value, *others = batch.columns
            yield pa.RecordBatch.from_arrays(
                [*parser.parse(value), *others], names=[*kinds.names, *batch.schema.names[1:]]
            )

    return parse


def require_good(decode: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """Return the function that decodes batches with `decode`, and leaves out their column `_corrupt`. It raises NotPlain for
    a bad record."""

    def read(batches: Batches) -> Batches:
        for batch in decode(batches):
            bad = batch.column("_corrupt")
            if bad.null_count < len(bad):
                raise NotPlain("a record is bad")
            yield batch.drop_columns("_corrupt")

    return read


def rename(read: Callable[[Batches], Batches], names: Sequence[str]) -> Callable[[Batches], Batches]:
    """Return the function that reads batches with `read`, with these names of columns."""

    def work(batches: Batches) -> Batches:
        return (batch.rename_columns(list(names)) for batch in read(batches))

    return work


def _join_lines(values: pa.Array) -> pa.Buffer:
    ends = pa.array([0, len(values)], pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(ends, values), b"\n")[0].as_buffer()


def check_lines(text: bytes, count: int) -> None:
    """Raise NotPlain unless each value begins and ends with a brace, and the bytes are UTF-8.

    With these braces no value is blank. So each value is one object, if there are as many rows as values.
    """
    if not (text.startswith(b"{") and text.endswith(b"}") and text.count(b"}\n{") == text.count(b"\n") == count - 1):
        raise NotPlain("a value does not begin and end with a brace")
    try:
        text.decode()
    except UnicodeDecodeError:
        raise NotPlain("a value is not UTF-8") from None
    if (b"NaN" in text or b"Inf" in text) and NO_NUMBER.search(text):
        raise NotPlain("NaN or Infinity")


def check_limits(values: Sequence[bytes]) -> None:
    """Raise NotPlain for a value that may exceed a limit of Spark's parser."""
    for value in values:
        if len(value) >= LONG and (value.count(b"[") + value.count(b"{") >= LONG or NUMBER.search(value)):
            raise NotPlain("a value has many levels, or a long number")
        if len(value) > 50_000:
            raise NotPlain("a value has more than 50,000 bytes")


def convert(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column that was read in the type in which it is declared. Raises: NotPlain."""
    if kind in FORMS:
        if pc.all(pc.match_substring_regex(column, FORMS[kind])).as_py() is False:
            raise NotPlain("a date or time of another form")
        try:
            return column.cast(kind)
        except pa.ArrowInvalid as error:
            raise NotPlain(str(error)) from None
    check_zeros(column)
    return column


def check_zeros(column: pa.Array) -> None:
    """Raise NotPlain for -0.0, at any depth."""
    if pa.types.is_struct(column.type):
        for one in column.flatten():
            check_zeros(one)
    elif pa.types.is_list(column.type):
        check_zeros(column.flatten())
    elif pa.types.is_floating(column.type) and pc.min(pc.divide(1.0, column)).as_py() == float("-inf"):
        raise NotPlain("-0")
