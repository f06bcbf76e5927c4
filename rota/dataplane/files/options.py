"""What Spark's reader is told beside what the user says.

Law: which files are read, and that all of each is read, is not the reader's choice: who sets one of `OURS` is refused. A
changed header is an error, a bad record is kept, and no byte of a good one is dropped.
"""

from collections.abc import Mapping

from rota.dataplane.spark.spark_source import CORRUPT
from rota.errors import ConfigError
from rota.pipeline import Files

OURS = {
    "mode", "columnnameofcorruptrecord", "basepath", "recursivefilelookup", "pathglobfilter", "path", "paths",
    "ignorecorruptfiles", "ignoremissingfiles", "modifiedbefore", "modifiedafter",
}  # fmt: skip
KEPT = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}  # whatever Spark's settings say
OF_TEXT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}


def check_options(declared: Files) -> None:
    """Raises ConfigError where the user sets what is not his to set."""
    if taken := sorted(o for o in declared.options if o.lower() in OURS):
        raise ConfigError(f"Option {', '.join(taken)} of files({declared.path!r}) is for rota to set. Leave it out")


def make_options(declared: Files) -> dict[str, str]:
    """What the law needs, over what the user says, over what is safer than Spark's defaults."""
    if declared.format == "parquet":
        return {**declared.options, **KEPT}
    safe = {"enableDateTimeParsingFallback": "false"}  # no 20200101 as a day of the year 57275
    if declared.format == "csv":
        safe |= {"enforceSchema": "false", "columnPruning": "false", **_keep_nuls(declared.options)}
    return {**safe, **declared.options, **OF_TEXT, **KEPT}


def _keep_nuls(options: Mapping[str, str]) -> dict[str, str]:
    """Where the quote is its own escape, Spark's parser takes a NUL for what escapes that, and drops it; the quote itself
    does the same for every other text."""
    given = {name.lower(): text for name, text in options.items()}
    quote = given.get("quote", '"')
    return {"charToEscapeQuoteEscaping": quote} if quote and given.get("escape") == quote else {}


def is_multiline(declared: Files) -> bool:
    """Whether a record may span lines."""
    return {name.lower(): text for name, text in declared.options.items()}.get("multiline", "").lower() == "true"
