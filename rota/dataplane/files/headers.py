"""Name the columns for which Spark refuses the header of a CSV file: Spark itself only counts them."""

import re

from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.files.landing import Landing
from rota.dataplane.files.texts import read_lines
from rota.dataplane.formats.quoting import Dialect
from rota.errors import shown
from rota.pipeline import Files, name_columns

MISFIT = re.compile(r"Number of column in CSV header is not equal to number of fields in the schema:.*?CSV file: (.+)")
MAX_NAMED = 5  # columns that a message names


def explain_misfit(text: str, landing: Landing, declared: Files) -> str:
    """Rewrite an error of Spark about the number of columns in a header.

    Args:
        text: the error's text; it names the file by its path below the landing folder, or by its address.
        landing: where the file is.
        declared: the schema, and the separator among the options.

    Returns:
        The text, with the undeclared and the missing columns in place of Spark's counts. The text of another error, or
        about a header that cannot be read, is returned unchanged.
    """
    if not (found := MISFIT.search(text)):
        return text
    path = found[1].rpartition(f"{landing.place.partition('://')[2] or landing.place}/")[2]
    if not (line := next(read_lines(landing.find(LandedFile(path, 0, 0))), "")):
        return text
    header = [name.strip() for name in Dialect.of(declared.options).split(line)]
    names = name_columns(declared.schema)
    more = [name for name in header if name.lower() not in {one.lower() for one in names}]
    less = [name for name in names if name.lower() not in {one.lower() for one in header}]
    parts = [
        f"{what} {', '.join(shown(name) for name in some[:MAX_NAMED])}{' and others' if len(some) > MAX_NAMED else ''}"
        for what, some in (("has the undeclared column", more), ("lacks the declared column", less))
        if some
    ]
    if not parts:
        return text
    said = f"the CSV header of {path} {' and '.join(parts)}. Declare the columns of the header in its order"
    return text[: found.start()] + said + (", and drop them in the transform" if more else "") + text[found.end() :]
