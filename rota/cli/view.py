"""The only tables and bars. Law: a reader's `--json` prints one JSON document and nothing else on standard output."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from rota.errors import printable

if TYPE_CHECKING:
    from rota.coordination.records import Parked

BAR = 24
console = Console(highlight=False)


def document(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON document; what JSON cannot say is said as text."""
    click.echo(json.dumps(value, indent=2, default=str))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> Table:
    """A plain table; columns named in `right` are numbers and align to the right."""
    drawn = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
    )
    for column in columns:
        drawn.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(escape(text(cell)) for cell in row))
    return drawn


def show(*parts: object) -> None:
    """Prints lines and tables, an empty line between tables."""
    for part in parts:
        if isinstance(part, Table):
            console.print(part)
        else:
            console.print(escape(str(part)), soft_wrap=True)  # the terminal wraps: a line that is copied stays whole


def text(cell: object) -> str:
    """A value as a person reads it, on one line: `-` for none, thousands apart, two digits after the point."""
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


def bar(share: float) -> str:
    """A share of 0 to 1 as a bar of fixed width."""
    filled = round(max(0.0, min(1.0, share)) * BAR)
    return "█" * filled + "·" * (BAR - filled)


def clock(at: float | None) -> str:
    """A moment as local time of day, with the date if it is not today."""
    if not at:
        return "-"
    moment = datetime.fromtimestamp(at, UTC).astimezone()
    today = moment.date() == datetime.now(UTC).astimezone().date()
    return moment.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def parked(record: "Parked") -> str:
    """Why a partition is parked, and when it is tried again if nobody does anything."""
    again = f" (failed {record.failures}x, tried again at {clock(record.retry_at)})" if record.retry_at else ""
    return f"{text(record.reason)}{again}"


def done(text: str) -> None:
    """The one line of a command that changed something."""
    click.echo(text)


class Progress:
    """Steps of a long command: a spinner on a terminal, one line a step otherwise; silent when JSON is asked for."""

    def __init__(self, silent: bool = False) -> None:
        self._silent, self._began = silent, time.monotonic()
        self._live: Status | None = None

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def doing(self, text: str) -> None:
        """What is waited for now: shown on a terminal only, as it is no change."""
        if self._live is not None:
            self._live.update(f"[dim]{self.seconds:6.1f} s[/]  {escape(text)}")

    def say(self, text: str) -> None:
        """One change, one line."""
        if not self._silent:
            console.print(f"[dim]{self.seconds:6.1f} s[/]  {escape(text)}", soft_wrap=True)

    @contextmanager
    def running(self) -> Iterator["Progress"]:
        """Shows the spinner while open, on a terminal."""
        if self._silent or not console.is_terminal:
            yield self
            return
        with console.status("") as self._live:
            yield self
        self._live = None
