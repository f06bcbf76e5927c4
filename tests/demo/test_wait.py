"""A command that waits for longer than a second prints for what, on a terminal only."""

import io

import pytest
from rich.console import Console

from rota.cli import view
from tests.waiting import wait_until


@pytest.mark.parametrize(("terminal", "patience"), [(True, 0.01), (True, 60.0), (False, 0.01)])
def test_a_long_wait_is_reported_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, patience: float
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(view, "errors", Console(file=out, force_terminal=terminal))
    monkeypatch.setattr(view, "SILENT", patience)
    with view.show_wait("looking through [folders]"):
        if terminal and patience < 1:
            wait_until(lambda: "looking through [folders]" in out.getvalue())
    assert ("looking" in out.getvalue()) == (terminal and patience < 1)
