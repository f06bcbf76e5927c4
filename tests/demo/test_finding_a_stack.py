"""Commands find the stack that `rota up` runs in `.rota`: only while it runs, and never in place of what the user names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rota.local.folder import RUNNING, StateFolder, find_running, join_running

VARIABLES = {"ROTA_ZOOKEEPER": "127.0.0.1:4711", "ROTA_TABLES": "/t", "AWS_ENDPOINT_URL": "http://127.0.0.1:4712"}
HOLD = "import sys; from pathlib import Path; from rota.local.folder import StateFolder\n" + (
    f"held = StateFolder(Path(sys.argv[1])).make().announce({VARIABLES!r}); print('up', flush=True); sys.stdin.read()"
)


def test_a_stack_is_found_from_below_while_its_process_lives(tmp_path: Path) -> None:
    below = tmp_path / "checkout" / "pipelines"
    below.mkdir(parents=True)
    state = below.parent / ".rota"
    assert find_running(below) == {}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as up:
        assert up.stdout
        assert up.stdout.readline() == "up\n"
        assert [find_running(place) for place in (below, below.parent, tmp_path)] == [VARIABLES, VARIABLES, {}]
        up.kill()
    assert json.loads((state / RUNNING).read_text()) == VARIABLES, "the file stays after kill -9"
    assert find_running(below) == {}


@pytest.mark.parametrize(
    ("environ", "joined"),
    [
        ({}, VARIABLES),
        ({"ROTA_ZOOKEEPER": "zk:2181"}, {"ROTA_ZOOKEEPER": "zk:2181"}),
        ({"ROTA_TABLES": "/mine", "HOME": "/h"}, {**VARIABLES, "ROTA_TABLES": "/mine", "HOME": "/h"}),
        ({"AWS_ENDPOINT_URL": "https://s3", "AWS_PROFILE": "p"}, VARIABLES),
    ],
)
def test_a_command_takes_what_the_user_does_not_set(
    tmp_path: Path, environ: dict[str, str], joined: dict[str, str]
) -> None:
    with StateFolder(tmp_path / ".rota").make().announce(VARIABLES):
        join_running(environ, tmp_path)
    assert environ == joined


def test_a_file_that_is_still_written_names_no_stack(tmp_path: Path) -> None:
    with StateFolder(tmp_path / ".rota").make().announce(VARIABLES) as file:
        file.truncate(9)
        assert find_running(tmp_path) == {}
