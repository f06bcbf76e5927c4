"""The keys of a command's JSON in docs/protocol.md, and those of a real document, in the same notation."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


def documented(command: str) -> set[str]:
    """The keys of the command's row in the table."""
    section = PROTOCOL.read_text().split("## CLI JSON")[1].split("\n## ")[0]
    row = next(line for line in section.splitlines() if line.startswith(f"| `{command}` |"))
    return set(re.findall(r"`([^`]+)`", row.split("|")[2]))


def held(document: object, said: set[str], here: str = "") -> Iterator[str]:
    """The keys of a document; a mapping that `said` has as `.*` counts as one, an empty list as what `said` has of it."""
    if isinstance(document, Mapping):
        if f"{here}.*" in said:
            yield f"{here}.*"
            return
        for key, value in document.items():
            yield from held(value, said, f"{here}.{key}" if here else key)
    elif isinstance(document, list):
        if not document:
            yield from (s for s in said if s.startswith(f"{here}[]"))
        for item in document:
            yield from held(item, said, f"{here}[]")
    elif document is None and any(s.startswith(f"{here}.") for s in said):
        yield from (s for s in said if s.startswith(f"{here}."))
    else:
        yield here
