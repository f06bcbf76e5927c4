"""Packing under fire, for some seconds; `tests.chaos.packing` has the laws, and plays it for longer."""

import subprocess
import sys

import pytest

PLAY = (sys.executable, "-m", "tests.chaos.packing", "--seconds", "3", "--packed", "20", "--day")


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_killed_maintenances_lose_no_version_and_take_none_of_the_last_day(guarded: bool) -> None:
    """Without the guard a commit is packed as soon as there are checkpoints, whatever its age."""
    done = subprocess.run(
        [*PLAY, *(["1"] if guarded else ["10", f"--packed-after={-(2**40)}"])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (0 if guarded else 1), done.stdout + done.stderr
    if not guarded:
        assert any(line.startswith("version ") for line in done.stdout.splitlines()), done.stdout
