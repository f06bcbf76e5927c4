"""What commands print: an id stays as it is and whole, a screen holds what needs a person, colours can be turned off."""

import io

import pytest
from rich.console import Console

from rota.cli import view
from rota.cli.status import draw_fitting
from tests.waiting import wait_until


def draw(drawn: object, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(drawn)
    return out.getvalue().splitlines()


def test_a_key_with_colons_is_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    """`mine:x:1` was printed with a cross in it."""
    assert "mine:x:1" in draw(view.make_table("", ["partition"], [("mine:x:1",)]), 80)[1]
    view.print_parts("mine:x:1 [bold]")
    assert capsys.readouterr().out == "mine:x:1 [bold]\n"


@pytest.mark.parametrize("width", [60, 80, 200])
def test_on_a_narrow_terminal_what_a_row_is_about_stays_whole_and_a_bar_is_cut(width: int) -> None:
    row = (
        "flights:somewhere",
        view.draw_bar(1.0),
        "w1",
        "a note that is so long that it takes more than one line of sixty",
    )
    lines = draw(view.make_table("", ["partition", "", "owner", "note"], [row]), width)
    assert all(len(line) <= width for line in lines)
    assert sum("flights:somewhere" in line for line in lines) == 1
    assert sum("\u2588" in line for line in lines) == 1


def test_a_table_without_headings_has_no_line_for_them() -> None:
    assert draw(view.make_table("", ["", ""], [("owner", "w1")]), 80) == ["owner  w1"]


@pytest.mark.parametrize(("off", "escapes"), [(True, False), (False, True)])
def test_an_error_is_red_where_colours_are_wanted(monkeypatch: pytest.MonkeyPatch, off: bool, escapes: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if off:
        monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    monkeypatch.setattr(view, "errors", Console(file=out, force_terminal=True, color_system="standard", emoji=False))
    view.print_error("No group 'x'. " + "Known: default. " * 20)
    assert ("\x1b[31m" in out.getvalue()) == escapes
    assert len(out.getvalue().splitlines()) == 1


def partition(number: int, needs: str) -> dict[str, object]:
    return dict.fromkeys(("owner", "target", "token", "offset", "lag", "quarantined", "parked", "pinned")) | {
        "id": f"p:{number:03}",
        "needs": needs,
    }


def need(kind: str, name: str, why: str) -> dict[str, object]:
    said = {"kind": kind, "name": name, "cause": "parked", "why": why, "step": "", "which": ""}
    return {**said, "since": 0.0, "person": True, "due": 0.0}


def test_what_is_watched_fits_on_the_screen_and_begins_with_what_needs_a_person() -> None:
    many = [partition(n, "mend it" if n == 99 else "") for n in range(100)]
    now = {"group": "g", "epoch": 1, "paused": False, "sentence": "s", "unreadable": {}}
    now["needs"] = [need("group", "g", "start one"), need("partition", "p:099", "mend it")]
    lines = draw(draw_fitting({**now, "workers": [], "partitions": many}, 30), 120)
    assert len(lines) <= 30
    first = next(line for line in lines if line.startswith("p:"))
    assert first.startswith("p:099")
    assert first.endswith("parked")
    assert "p:099: mend it" in lines
    assert lines[-1].endswith("more. --trouble, --pipeline and --worker show fewer")
    assert "group g: start one" in lines
    few = draw(draw_fitting({**now, "workers": [], "partitions": many[:3]}, 30), 120)
    assert not any("more." in line for line in few)


def test_a_need_that_may_come_is_listed_apart_from_what_is_retried() -> None:
    """A landing folder that was gone was listed under "Heals by itself" until it needed an operator."""
    now = {
        "group": "g",
        "epoch": 1,
        "paused": False,
        "sentence": "s",
        "unreadable": {},
        "workers": [],
        "partitions": [],
    }
    later, never = ({**need("partition", f"p:{due}", "mend it"), "person": False, "due": due} for due in (9.0, None))
    lines = draw(draw_fitting({**now, "needs": [later, never]}, 30), 120)
    begin = lines.index("Nothing needs an operator.")
    assert [line for line in lines[begin + 1 :] if line] == [
        "Needs an operator if it lasts:", "p:9.0: mend it", "Is retried automatically:", "p:None: mend it",
    ]  # fmt: skip


def test_of_two_nested_waits_the_outer_one_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(view, "errors", Console(file=out, force_terminal=True))
    monkeypatch.setattr(view, "SILENT", 0.0)
    for time in (1, 2):
        with view.show_wait(f"outer {time}"), view.show_wait("inner"):
            wait_until(lambda: f"outer {time}" in out.getvalue())  # noqa: B023
    assert "inner" not in out.getvalue()
