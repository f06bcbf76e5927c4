"""Escapes descriptions of checks and assets, which the page renders as Markdown."""

import re

CODE_OR_WORD = re.compile(r"`[^`]*`|[^\s`]*[_*~<>\[\]\\][^\s`]*")
WORD = re.compile(r"([(\"']*)(.*?)([.,;:)\"']*)", re.S)


def as_code(text: str) -> str:
    """Return the text with each word as code that Markdown would format, such as `__init__.py`."""
    return CODE_OR_WORD.sub(_quote, text)


def _quote(found: re.Match[str]) -> str:
    if found[0].startswith("`"):
        return found[0]
    word = WORD.fullmatch(found[0])
    assert word is not None
    return f"{word[1]}`{word[2]}`{word[3]}"
