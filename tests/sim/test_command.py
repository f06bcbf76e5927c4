"""`python -m simulator`: one table, JSON, and a red line with the way back where something breaks."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import assignors
from benchmarks.pages import write_section
from rota.errors import ConfigError
from simulator import __main__ as main
from simulator.__main__ import command
from simulator.checker import Violation

ROOT = Path(__file__).parents[2]
ONE = ["--world", "crash", "--jobs", "1"]


def test_a_table() -> None:
    words = [*ONE, "--assignor", "sticky", "--assignor", "hash"]
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "unavoidable" in done.output


@pytest.mark.parametrize("worlds", [["crash"], ["crash", "latency"]])
def test_a_picture_and_a_page(tmp_path: Path, worlds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignors, "contestants", lambda: ("sticky", "hash"))
    page, named = tmp_path / "page.md", [word for name in worlds for word in ("--world", name)]
    done = CliRunner().invoke(assignors.main, [*named, "--write", str(page)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "simulate.png").read_bytes().startswith(b"\x89PNG")
    assert "| **crash** | sticky | 1.00 |" in page.read_text()


def test_json_holds_every_measure_and_nothing_else(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [*ONE, "--assignor", "sticky", "--seed", "3", "--json"], catch_exceptions=False)
    (result,) = json.loads(done.output)["results"]
    assert (result["world"], result["assignor"], result["seed"]) == ("crash", "sticky", 3)
    named = (main.__doc__ or "").partition("each world, assignor and seed: ")[2]
    assert set(re.findall(r"`([a-z_0-9]+)`", named)) == set(result)


def test_it_prints_its_progress_without_a_terminal() -> None:
    words = ("--world", "join-storm", "--assignor", "hash", "--assignor", "range")
    done = subprocess.run([sys.executable, "-m", "simulator", *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "1 of 2 runs" in done.stderr
    assert "2 of 2 runs" in done.stderr


def test_an_unknown_assignor_is_named_beside_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"Unknown assignor 'stiky'\. Known: sticky, "):
        CliRunner().invoke(command, [*ONE, "--assignor", "stiky"], catch_exceptions=False)


def test_a_broken_invariant_is_one_red_line_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise Violation("gap at 3.000 s: it broke. Again: python -m simulator --world crash --assignor sticky --seed 1")

    monkeypatch.setattr("simulator.compare.run_one", broken)
    done = CliRunner().invoke(command, [*ONE, "--assignor", "sticky"])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert done.output.rstrip().endswith("--seed 1")


def test_a_section_is_replaced_and_the_rest_of_the_page_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Results\n\n<!-- a -->\nold\n<!-- /a -->\n\nEnd.\n")
    write_section(page, "a", "new")
    write_section(page, "b", "more")
    assert page.read_text() == "# Results\n\n<!-- a -->\nnew\n<!-- /a -->\n\nEnd.\n\n<!-- b -->\nmore\n<!-- /b -->\n"
