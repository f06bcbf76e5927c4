"""The table of all situations on a page: what was played now, beside what was played before."""

from collections.abc import Iterable
from pathlib import Path

from benchmarks.pages import write_section
from tests.situations.row import Row, show
from tests.situations.situation import Situation

SECTION = "situations"
HEAD = ("situation", "cause", "status", "page", "alert", "over", "load", "")
NOT_PLAYED = "| | | | | | not played |"
ALIGN = "|---|---|---:|---:|---:|---:|---:|---|"


def write_table(page: Path, all_of_them: Iterable[Situation], rows: Iterable[Row]) -> None:
    """Writes the rows into the page's section. A situation that was not played keeps its line, or is marked so."""
    known = {line.split("|")[1].strip(): line for line in read_lines(page) if NOT_PLAYED not in line}
    known |= {row.of.name: describe(row) for row in rows}
    lines = [known.get(one.name, f"| {one.name} | {one.cause or 'healthy'} {NOT_PLAYED}") for one in all_of_them]
    write_section(page, SECTION, "\n".join([f"| {' | '.join(HEAD)} |", ALIGN, *lines]))


def read_lines(page: Path) -> list[str]:
    """The lines of the table on the page."""
    _, _, rest = page.read_text().partition(f"<!-- {SECTION} -->")
    return [line for line in rest.partition(f"<!-- /{SECTION} -->")[0].splitlines() if line.startswith("| ")][1:]


def describe(row: Row) -> str:
    """The row as a line of the table."""
    page = "" if row.of.red == "-" and row.page is None else show(row.page)
    seconds = [
        show(row.status),
        page,
        show(row.alert) if row.of.alerts else "",
        show(row.over) if row.of.alerts else "",
    ]
    cells = seconds if row.of.cause else [""] * len(seconds)
    said = row.judge().replace("|", "/").replace("\n", " ")[:200]
    return f"| {row.of.name} | {row.of.cause or 'healthy'} | {' | '.join(cells)} | {row.load:.0f} | {said} |"
