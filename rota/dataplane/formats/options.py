"""What Spark's readers and parsers are told beside what the user says.

Law: which files are read, and that all of each is read, is not the reader's choice: who sets one of `OURS` is refused. A
changed header is an error, a bad record is kept (or left out, where whoever asks so counts it), and no byte of a good one is
dropped.
"""

from collections.abc import Mapping

from rota.errors import ConfigError
from rota.record import CORRUPT

OURS = {
    "mode", "columnnameofcorruptrecord", "basepath", "recursivefilelookup", "pathglobfilter", "path", "paths",
    "ignorecorruptfiles", "ignoremissingfiles", "modifiedbefore", "modifiedafter",
}  # fmt: skip
NO_CHARACTER = "\uffff"  # Unicode gives it to none
KEPT = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}  # whatever Spark's settings say
LONG_TEXTS = {"maxStringLen": str((1 << 31) - 1)}  # of JSON; Spark took one of 20,000,001 characters for a bad record
CHECKED = {"parquet.page.verify-checksum.enabled": "true"}  # a page has one if Spark wrote it; it was not looked at
OF_TEXT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
GOOD_ALONE = {"mode": "DROPMALFORMED"}  # leaves out what OF_TEXT marks, and nothing else


def check_options(given: Mapping[str, str], where: str) -> None:
    """Raises ConfigError where the user sets what is not his to set."""
    if taken := sorted(o for o in given if o.lower() in OURS):
        raise ConfigError(f"Option {', '.join(taken)} of {where} is for rota to set. Leave it out")


def make_options(format: str, given: Mapping[str, str]) -> dict[str, str]:
    """What the law needs, over what the user says, over what is safer than Spark's defaults."""
    if format == "parquet":
        return {**given, **CHECKED, **KEPT}
    safe = {"enableDateTimeParsingFallback": "false"}  # no 20200101 as a day of the year 57275
    if format == "csv":
        safe |= {"enforceSchema": "false", "columnPruning": "false"}
        return {**safe, **keep_nuls(double_quotes(given)), **OF_TEXT, **KEPT}
    return {**safe, **LONG_TEXTS, **given, **OF_TEXT, **KEPT}


def double_quotes(given: Mapping[str, str]) -> dict[str, str]:
    """The user's options, under which a quote within quotes is doubled (RFC 4180) if they name no other escape.

    Spark's default is a backslash: then the doubled quotes would stay in the value."""
    names = {name.lower(): name for name in given}
    quote = given.get(names.get("quote", ""), '"')
    return dict(given) if "escape" in names or not quote else {**given, "escape": quote}


def keep_nuls(given: Mapping[str, str]) -> dict[str, str]:
    """The user's options, so that Spark's parser takes no NUL for its own mark, and drops it. It does so where the quote
    is empty, which means none; a character that no text has means the same. It does so where the quote is its own escape,
    for what escapes that; the quote in its place gives the same for every other text."""
    names = {name.lower(): name for name in given}
    kept = {**given, **({names["quote"]: NO_CHARACTER} if given.get(names.get("quote", "")) == "" else {})}
    quote = kept.get(names.get("quote", ""), '"')
    doubled = kept.get(names.get("escape", "")) == quote and "chartoescapequoteescaping" not in names
    return {**kept, **({"charToEscapeQuoteEscaping": quote} if doubled else {})}


def find_encoding(given: Mapping[str, str]) -> str:
    """The encoding that the user declares; empty for UTF-8."""
    named = {name.lower(): text for name, text in given.items()}
    found = named.get("encoding", named.get("charset", ""))
    return "" if found.lower() in ("utf-8", "utf8") else found


def is_multiline(given: Mapping[str, str]) -> bool:
    """Whether a record may span lines."""
    return {name.lower(): text for name, text in given.items()}.get("multiline", "").lower() == "true"
