"""Plain English: the packages of `PLAIN` and all pages use none of the words of `WORDS`.

A package is checked in names, comments, docstrings and messages; a page in its text, without blocks and quoted code.
`READ` has the packages that were read once more: they use none of the words of `WORDS_OF_READ` either. Add a package once
it has been rewritten, and a word when a review finds it.
"""

import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.docs.pages import QUOTED, ROOT, strip_blocks

PLAIN = ("rota", "assets", "sensors", "resources", "dagster_project", "pipelines", "simulator", "benchmarks", "tests")
READ = (  # also without `WORDS_OF_READ`
    *(
        "rota/cli",
        "rota/face",
        "rota/dagster",
        "rota/local",
        "rota/demo",
        "assets",
        "sensors",
        "resources",
        "simulator",
    ),
    *(f"rota/dataplane/{name}" for name in ("kafka", "rabbitmq", "formats", "delta")),
)
PLAIN_PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))),
)
WORDS = (
    "nobody",
    "somebody",
    "whoever",
    "who",
    "whom",
    "told",
    "tells",
    "says",
    "stands",
    "hangs on",
    "goes by",
    "everybody",
    "anybody",
    "stood",
    "mends",
    "untold",
)
WORDS_OF_READ = (
    "mend",
    "aside",
    "goes on",
    "go on",
    "hears",
    "politely",
    "in the mean",
    "let go",
    "lets go",
    "has seen",
)
EXEMPT = ("UNOWNED", '"told"')  # the second is a key in the cursors that sensors have stored
NOT_PLAIN = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)
NOT_READ = re.compile(rf"\b({'|'.join(WORDS_OF_READ)})\b", re.IGNORECASE)


def find_words(source: str, words: re.Pattern[str] = NOT_PLAIN) -> list[str]:
    """`line: word` for each of the words in the names, comments and strings of `source`."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NAME, tokenize.STRING, tokenize.COMMENT) and token.string not in EXEMPT:
            text = token.string.replace("_", " ") if token.type == tokenize.NAME else token.string
            found += [f"{token.start[0]}: {word}" for word in words.findall(text)]
    return found


@pytest.mark.parametrize(("package", "read"), [*((one, False) for one in PLAIN), *((one, True) for one in READ)])
def test_a_rewritten_package_uses_plain_words(package: str, read: bool) -> None:
    files = [file for file in (ROOT / package).rglob("*.py") if file != Path(__file__)]
    found = {
        str(file.relative_to(ROOT)): find_words(file.read_text(), NOT_READ if read else NOT_PLAIN) for file in files
    }
    assert {file: words for file, words in found.items() if words} == {}


@pytest.mark.parametrize("page", PLAIN_PAGES)
def test_a_rewritten_page_uses_plain_words(page: str) -> None:
    assert find_words_of_page(strip_blocks(ROOT / page)) == []


def find_words_of_page(text: str) -> list[str]:
    """`line: word` for each listed word in the text, without quoted code."""
    lines = enumerate(QUOTED.sub("", text).splitlines(), 1)
    return [f"{number}: {word}" for number, line in lines for word in NOT_PLAIN.findall(line)]


def test_each_word_is_found_in_a_page() -> None:
    for word in WORDS:
        assert find_words_of_page(f"a\nHere `{word}` {word} it") == [f"2: {word}"]


def test_each_word_is_found_in_names_comments_and_strings() -> None:
    for word in WORDS:
        name = word.replace(" ", "_")
        assert find_words(f'{name} = f"{word} it"  # {word}\n') == [f"1: {word}"] * 3
