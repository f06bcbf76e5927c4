"""Plain English: packages in `PLAIN` use none of the words in `WORDS`, in code, comments, docstrings and messages.

A package is added to `PLAIN` once it has been rewritten; a word is added to `WORDS` when a review finds it.
"""

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAIN = ("rota/core", "rota/coordination", "rota/group", "rota/people", "rota/run")
WORDS = ("nobody", "somebody", "whoever", "who", "whom", "told", "tells", "says", "stands", "hangs on", "goes by")
NOT_PLAIN = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)


def find_words(source: str) -> list[str]:
    """`line: word` for each listed word in the names, comments and strings of `source`."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NAME, tokenize.STRING, tokenize.COMMENT) and token.string != "UNOWNED":
            text = token.string.replace("_", " ") if token.type == tokenize.NAME else token.string
            found += [f"{token.start[0]}: {word}" for word in NOT_PLAIN.findall(text)]
    return found


@pytest.mark.parametrize("package", PLAIN)
def test_a_rewritten_package_uses_plain_words(package: str) -> None:
    found = {str(file.relative_to(ROOT)): find_words(file.read_text()) for file in (ROOT / package).rglob("*.py")}
    assert {file: words for file, words in found.items() if words} == {}


def test_each_word_is_found_in_names_comments_and_strings() -> None:
    for word in WORDS:
        name = word.replace(" ", "_")
        assert find_words(f'{name} = f"{word} it"  # {word}\n') == [f"1: {word}"] * 3
