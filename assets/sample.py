"""Renders rows as a small Markdown table, which Dagster's page shows without a click.

Laws:
1. A value is rendered as text: it starts no cell, line, image or HTML. The page may make a link of an address.
2. The table is at most `WIDTH` letters wide, and has at most `MAX_LENGTH` characters: the page folds a longer text, and the
   event log keeps each one. Columns that do not fit are left out; then the last column is `MORE`.
3. It contains no secret that this process knows.
"""

import re
from collections.abc import Mapping, Sequence

from rota.errors import mask, printable

WIDTH, CELL, MAX_LENGTH = 96, 24, 999
SPECIAL = re.compile(r"[\\`*_{}\[\]<>|~&!$^]")  # letters with a meaning in Markdown or HTML
MORE = "…"
APART = "\x1f"  # no printable text holds it


def render(rows: Sequence[Mapping[str, object]]) -> str:
    """Return the table; empty without rows."""
    if not rows:
        return ""
    names = list(rows[0])
    lines = _mask([[_show(name) for name in names], *([_show(row.get(name)) for name in names] for row in rows)])
    widths = [max(len(line[i]) for line in lines) + 3 for i in range(len(names))]
    fitting = max(1, sum(sum(widths[: i + 1]) <= WIDTH for i in range(len(names))))
    while len(text := _draw(lines, fitting)) > MAX_LENGTH and fitting > 1:
        fitting -= 1
    return text if len(text) <= MAX_LENGTH else ""


def _draw(lines: Sequence[Sequence[str]], columns: int) -> str:
    more = columns < len(lines[0])
    head, *body = (
        "|".join([*map(_escape, line[:columns]), *([MORE if at == 0 else ""] if more else [])])
        for at, line in enumerate(lines)
    )
    return "\n".join(f"|{line}|" for line in (head, "|".join(["-"] * (columns + more)), *body))


def _mask(lines: list[list[str]]) -> list[list[str]]:
    """Return the cells without secrets, each cut to `CELL` letters."""
    masked = iter(mask(APART.join(cell for line in lines for cell in line)).split(APART))
    return [[_cut(next(masked)) for _ in line] for line in lines]


def _cut(text: str) -> str:
    return text if len(text) <= CELL else text[: CELL - 1] + MORE


def _show(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return f"0x{value[:CELL].hex()}"
    return printable(str(value))


def _escape(text: str) -> str:
    return SPECIAL.sub(lambda found: f"&#{ord(found[0])};", text)
