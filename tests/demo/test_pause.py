"""Dagster's code server launches runs after a long pause, such as a laptop's sleep."""

import os
import signal
from pathlib import Path

from rota.local.child import Child
from rota.local.dagster_services import CODE, SETTINGS, listens, make_commands
from tests.processes import list_below
from tests.waiting import wait_until

DEFINITIONS = "import dagster as dg\ndefs = dg.Definitions()\n"
TTL = "DAGSTER_GRPC_PROXY_HEARTBEAT_TTL_SECONDS"
SILENCE = "No heartbeat received"  # a process that logs this refuses each run until the last one of before has ended


def test_a_pause_does_not_end_the_code_server_of_rota_up_and_would_by_dagsters_own_settings(tmp_path: Path) -> None:
    """Dagster's own settings are 30 s and 45 s; 2 s stand for them in the ablation."""
    servers: dict[str, Child] = {}
    file = tmp_path / "defs.py"
    file.write_text(DEFINITIONS)
    try:
        for name, settings in (("rota", SETTINGS), ("short", {**SETTINGS, TTL: "2"})):
            home = tmp_path / name
            home.mkdir()
            env = {**os.environ, **settings, "DAGSTER_HOME": str(home)}
            command = make_commands(file, tmp_path, home, home / "code", 0)[CODE]
            assert "--heartbeat" not in command, "the part that the page and the daemon talk to waits for no heartbeat"
            servers[name] = Child(name, command, home / "log", env, signal.SIGINT)
        for name, server in servers.items():
            wait_until(lambda name=name: listens(tmp_path / name / "code"))
            # the part with the code goes on, as after a sleep: the clock went on, and no heartbeat has come yet
            server.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: SILENCE in (tmp_path / "short" / "log").read_text())
        for server in servers.values():
            server.process.send_signal(signal.SIGCONT)
        assert SILENCE not in (tmp_path / "rota" / "log").read_text()
        below = list_below(servers["rota"].process.pid).values()
        (inner,) = [command for command in below if "grpc" in command]
        assert inner[inner.index("--heartbeat-timeout") + 1] == SETTINGS[TTL]
    finally:
        for server in servers.values():
            server.end(5)
