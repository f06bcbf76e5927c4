"""How commands print. Law: with `--json` a command prints one JSON document, and nothing else, to standard output.

`reserve_stdout` keeps standard output for the document. Output of pipeline files and libraries goes to standard error.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Literal

import click
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table
from rich.text import Text

from rota.errors import printable

if TYPE_CHECKING:
    from rota.coordination.records import Parked

BAR = 24
MOMENT = "%Y-%m-%d %H:%M:%S %Z"
SILENT = 1.0  # seconds until a command shows what it waits for
_waits = threading.Lock()  # held while a wait is shown
console = Console(highlight=False, emoji=False)  # a key may hold `:x:`
errors = Console(highlight=False, emoji=False, stderr=True)
_documents: IO[str] | None = None  # where documents go; None: standard output


def reserve_stdout() -> None:
    """Keep standard output for `print_document`. From now on everything else is written to standard error."""
    global _documents
    sys.stdout.flush()
    _documents = os.fdopen(os.dup(sys.stdout.fileno()), "w", errors="backslashreplace")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def print_document(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document. A value that JSON does not know is printed as text."""
    click.echo(json.dumps(value, indent=2, default=str), file=_documents)


def make_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()
) -> Table:
    """Return a plain table. The columns named in `right` are aligned to the right."""
    drawn = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim",
        show_header=any(columns),
    )  # fmt: skip
    for number, column in enumerate(columns):  # the first names the row: it is not wrapped, so that it can be copied
        justify: Literal["left", "right"] = "right" if column in right else "left"
        drawn.add_column(column, justify=justify, overflow="fold", no_wrap=not number)
    for row in rows:
        drawn.add_row(*(cell if isinstance(cell, Text) else Text(format_value(cell)) for cell in row))
    return drawn


def print_parts(*parts: object) -> None:
    """Print lines and tables, one after the other."""
    for part in parts:
        if isinstance(part, Table):
            console.print(part)
        else:
            console.print(Text(str(part)), soft_wrap=True)  # the terminal wraps: a line that is copied stays whole


def format_value(cell: object) -> str:
    """Return a value on one line: `-` for none, a comma between thousands, two decimals."""
    if cell is None or cell == "":
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.2f}"
    if isinstance(cell, (tuple, list, frozenset, set)):
        return " ".join(sorted(map(str, cell)) if isinstance(cell, (set, frozenset)) else map(str, cell)) or "-"
    return printable(str(cell))


def draw_bar(share: float) -> Text:
    """Return a bar for a share from 0 to 1. It is cut if there is no room, and never takes a second line."""
    filled = round(max(0.0, min(1.0, share)) * BAR)
    return Text("█" * filled + "·" * (BAR - filled), no_wrap=True, overflow="crop")


def format_time(at: float | None) -> str:
    """Return a time (seconds since 1970) as local time, with date and zone if it is not today."""
    if not at:
        return "-"
    moment = datetime.fromtimestamp(at, UTC).astimezone()
    return moment.strftime("%H:%M:%S" if moment.date() == datetime.now(UTC).astimezone().date() else MOMENT)


def format_moment(at: float | None) -> str:
    """Return a time (seconds since 1970) as local time with date and zone."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime(MOMENT) if at else "-"


def describe_park(record: "Parked") -> str:
    """Return why a partition is parked, and when it is retried automatically."""
    again = f" (failed {record.failures}x, tried again at {format_time(record.retry_at)})" if record.retry_at else ""
    return f"{format_value(record.reason)}{again}"


@contextmanager
def show_wait(text: str) -> Iterator[None]:
    """On a terminal, show what the command waits for after one second. Of two nested calls, the outer one is shown."""
    if not errors.is_terminal or not _waits.acquire(blocking=False):
        yield
        return
    spinner = errors.status(f"[dim]{escape(text)}[/]")
    timer = threading.Timer(SILENT, spinner.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        spinner.stop()
        _waits.release()


def print_line(text: str) -> None:
    """Print the line of a command that changed something."""
    click.echo(text)


def print_error(text: str) -> None:
    """Print one line to standard error, red if a terminal has colours and NO_COLOR is not set."""
    errors.print(Text(text, "red"), soft_wrap=True)


class Progress:
    """The steps of a long command: a spinner on a terminal, a line for each step elsewhere; nothing if `silent`."""

    def __init__(self, silent: bool = False) -> None:
        self._silent, self._began = silent, time.monotonic()
        self._live: Status | None = None

    @property
    def seconds(self) -> float:
        """Return the seconds since the command began."""
        return time.monotonic() - self._began

    def show_step(self, text: str) -> None:
        """Show what the command waits for, on a terminal only."""
        if self._live is not None:
            self._live.update(f"[dim]{self.seconds:6.1f} s[/]  {escape(text)}")

    def say(self, text: str) -> None:
        """Print one line for one change."""
        if not self._silent:
            console.print(f"[dim]{self.seconds:6.1f} s[/]  {escape(text)}", soft_wrap=True)

    @contextmanager
    def show_spinner(self) -> Iterator["Progress"]:
        """Show the spinner while it is open, on a terminal."""
        if self._silent or not console.is_terminal:
            yield self
            return
        with console.status("") as self._live:
            yield self
        self._live = None
