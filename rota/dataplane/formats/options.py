"""The options of Spark's readers and parsers: the user's, and those that rota sets.

Law: rota chooses the files that a reader reads, and the reader reads each completely: a user may not set the options of
`OURS`. A changed header is an error. A bad record is kept, or left out if the caller counts it. No byte of a good record is
dropped.
"""

from collections.abc import Mapping
from importlib import import_module

from rota.errors import ConfigError
from rota.record import CORRUPT

OURS = {
    "mode", "columnnameofcorruptrecord", "basepath", "recursivefilelookup", "pathglobfilter", "path", "paths",
    "ignorecorruptfiles", "ignoremissingfiles", "modifiedbefore", "modifiedafter",
}  # fmt: skip
NO_CHARACTER = "\uffff"  # Unicode assigns it to no character
KEPT = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}  # whatever Spark's settings are
LONG_TEXTS = {"maxStringLen": str((1 << 31) - 1)}  # of JSON; by default a text of 20,000,001 characters is a bad record
CHECKED = {
    "parquet.page.verify-checksum.enabled": "true"
}  # pages that Spark wrote have one; by default it is not verified
OF_TEXT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
GOOD_ALONE = {"mode": "DROPMALFORMED"}  # leaves out exactly the records that OF_TEXT marks as bad


def check_options(given: Mapping[str, str], where: str) -> None:
    """Raise ConfigError if the user sets an option that rota sets itself."""
    if taken := sorted(o for o in given if o.lower() in OURS):
        raise ConfigError(f"Option {', '.join(taken)} of {where} is for rota to set. Leave it out")


def check_library(format: str, module: str, package: str) -> None:
    """Raise ConfigError if what reads the format is not installed."""
    try:
        import_module(module)
    except ModuleNotFoundError:
        raise ConfigError(f"Format {format} needs {package}. Type: pip install {package}") from None


def make_options(format: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the user's options, with the options that the law requires, and with safer defaults than Spark's."""
    if format == "parquet":
        return {**given, **CHECKED, **KEPT}
    safe = {"enableDateTimeParsingFallback": "false"}  # else 20200101 is a day of the year 57275
    if format == "csv":
        safe |= {"enforceSchema": "false", "columnPruning": "false"}
        return {**safe, **keep_nuls(double_quotes(given)), **OF_TEXT, **KEPT}
    return {**safe, **LONG_TEXTS, **given, **OF_TEXT, **KEPT}


def double_quotes(given: Mapping[str, str]) -> dict[str, str]:
    """Return the user's options; unless they name an escape, a quote within quotes is doubled (RFC 4180).

    Spark's default escape is a backslash: the doubled quotes would stay in the value.
    """
    names = {name.lower(): name for name in given}
    quote = given.get(names.get("quote", ""), '"')
    return dict(given) if "escape" in names or not quote else {**given, "escape": quote}


def keep_nuls(given: Mapping[str, str]) -> dict[str, str]:
    """Return the user's options, changed so that Spark's parser drops no NUL.

    The parser stores "no character" as NUL, and drops a NUL of the text if the quote is empty, or if the quote is its own
    escape and the escape of the escape is not set. Instead of no quote, the quote is a character that no text contains. The
    escape of the escape is set to the quote, which changes no other text.
    """
    names = {name.lower(): name for name in given}
    kept = {**given, **({names["quote"]: NO_CHARACTER} if given.get(names.get("quote", "")) == "" else {})}
    quote = kept.get(names.get("quote", ""), '"')
    doubled = kept.get(names.get("escape", "")) == quote and "chartoescapequoteescaping" not in names
    return {**kept, **({"charToEscapeQuoteEscaping": quote} if doubled else {})}


def find_encoding(given: Mapping[str, str]) -> str:
    """Return the encoding that the user declares; empty for UTF-8."""
    named = {name.lower(): text for name, text in given.items()}
    found = named.get("encoding", named.get("charset", ""))
    return "" if found.lower() in ("utf-8", "utf8") else found


def is_multiline(given: Mapping[str, str]) -> bool:
    """Return whether a record may span lines."""
    return {name.lower(): text for name, text in given.items()}.get("multiline", "").lower() == "true"
