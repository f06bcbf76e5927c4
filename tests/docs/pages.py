"""The pages of the documentation and their contents: blocks of code, commands, paths, links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
INDENTED = re.compile(r"(?:^ {4}\S.*\n)+", re.M)
QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `language` is empty where the fence names none."""

    page: Path
    language: str
    text: str


def name_page(page: Path) -> str:
    """The page as a test is named after it."""
    return str(page.relative_to(ROOT))


def find_blocks(language: str) -> list[Block]:
    """Every fenced block of that language."""
    found = ((page, FENCE.findall(page.read_text())) for page in PAGES)
    return [Block(page, kind, text) for page, fences in found for kind, text in fences if kind == language]


def strip_blocks(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text())


def find_commands(page: Path) -> Iterator[str]:
    """Every shell line of the page: indented ones, and those that stand in backticks."""
    text = strip_blocks(page)
    lines = (line.strip() for block in INDENTED.findall(text) for line in block.splitlines())
    for line in (*lines, *QUOTED.findall(INDENTED.sub("", text))):
        yield line.partition(" #")[0].strip()


def list_anchors(page: Path) -> set[str]:
    """The anchors of the page's headings, as GitHub makes them."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(strip_blocks(page)))
    return {heading.strip().replace(" ", "-") for heading in plain}
