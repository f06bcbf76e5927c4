"""Parse the lines of landed files as records: each line is treated like the value of a message."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rota.dataplane.files.texts import has_header
from rota.dataplane.formats import lines, values
from rota.dataplane.formats.options import make_options
from rota.dataplane.formats.quoting import Dialect
from rota.errors import DataError
from rota.ids import quote
from rota.pipeline import Files
from rota.record import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUOTED = 80  # characters of a file that an error quotes
WRITTEN = r"[^ \t\r\n]"  # matches a line of JSON that is not blank


def find_ends(options: Mapping[str, str]) -> dict[str, str]:
    """Return the option for the end of a line, if the user set it."""
    return {name: text for name, text in options.items() if name.lower() == "linesep"}


def parse(frame: "DataFrame", declared: Files) -> "DataFrame":
    """Parse a frame of lines (see `Listed.load_text`) into records, and mark the bad ones. Blank lines, comments and headers
    are no records. A header that differs from the declared one fails the job."""
    from pyspark.sql import functions as F  # noqa: N812

    form, given, line = declared.format, declared.options, F.col(values.VALUE)
    shown = values.is_shown(line, Dialect.of(given)) if form == "csv" else line.rlike(WRITTEN)
    comment = {name.lower(): text for name, text in given.items()}.get("comment") if form == "csv" else None
    frame = frame.where(shown & ~line.startswith(comment) if comment else shown)
    frame = frame.select(line.cast("binary").alias(values.VALUE), PARTITION, OFFSET, "begins")
    headed = has_header(form, given)
    frame = values.drop_headers(frame, declared.schema, given) if headed else frame.drop("begins")
    return values.parse(frame, declared.schema, form, given, lines_of_files=True)


def check_one_value(whole: "DataFrame", declared: Files, locate: Callable[[str, int], str], then: str) -> None:
    """Raise DataError for the first `multiLine` file of JSON with data behind its first value: Spark reads the first value
    only. `then`: the step after the file is corrected."""
    from pyspark.sql import functions as F  # noqa: N812

    found = lines.find_joined(whole, declared.schema, make_options(declared.format, declared.options))
    first = F.min(F.struct(PARTITION, OFFSET, F.substring("value", 1, QUOTED).cast("binary"))).alias("first")
    if one := found.agg(first).collect()[0]["first"]:
        partition, offset, text = one[0], one[1], lines.show(bytes(one[2]))
        raise DataError(
            f"{locate(partition, offset)} (offset {offset}) has something behind its first value, which Spark alone "
            f"reads: {text} ...",
            step=f"Put each record into one list, {then.format(p=quote(partition))}",
            partition=partition,
        )
