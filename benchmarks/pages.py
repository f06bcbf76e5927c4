"""Sections of a page that a command writes. They are never edited by hand."""

from pathlib import Path


def write_section(page: Path, name: str, body: str) -> None:
    """Replaces what is between `<!-- name -->` and `<!-- /name -->` in `page`, or adds it at the end."""
    head, tail = f"<!-- {name} -->", f"<!-- /{name} -->"
    text = page.read_text() if page.exists() else ""
    if head in text and tail in text:
        before, rest = text.split(head, 1)
        after = rest.split(tail, 1)[1]
    else:
        before, after = (text.rstrip() + "\n\n" if text.strip() else ""), "\n"
    page.write_text(f"{before}{head}\n{body.strip()}\n{tail}{after}")
