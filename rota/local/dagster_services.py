"""Dagster's three processes on one machine: the code server, the page (`dagster-webserver`) and the daemon.

`dagster dev` starts the same three, but it ends all of them when one ends, and its code server shuts down after 45 s without
a heartbeat: after a laptop's sleep it refuses launches until its last run has ended. Here each process is restarted alone,
and the code server shuts down after `PAUSE` seconds.
"""

import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

CODE, PAGE, DAEMON = "dagster-code-server", "dagster-page", "dagster-daemon"
NAMES = (CODE, PAGE, DAEMON)  # in the order in which they start
LOCATION = "rota"  # the name of the code location
PAUSE = 30 * 24 * 3600  # seconds: a laptop may sleep for a month

# Settings that Dagster reads only from the environment. While sensors wait inside their ticks, both parts of the code server
# (the proxy and the process with the code) need free threads to launch runs. Dagster searches for crashed runs twice a
# minute instead of every 5 s. The last setting is how long the process with the code waits for a heartbeat of the proxy.
SETTINGS = {
    "DAGSTER_GRPC_MAX_WORKERS": "24",
    "DAGSTER_CODE_SERVER_MAX_WORKERS": "24",
    "DAGSTER_EVENT_LOG_CONSUMER_DAEMON_INTERVAL_SECONDS": "30",
    "DAGSTER_GRPC_PROXY_HEARTBEAT_TTL_SECONDS": str(PAUSE),
}
WORKSPACE = """load_from:
  - grpc_server: {{socket: "{socket}", location_name: {location}}}
"""


def make_commands(file: Path, root: Path, home: Path, address: Path, port: int) -> Mapping[str, list[str]]:
    """Write the workspace of the page and the daemon into `home`, and return the command of each process by name.

    Args:
        file: The Python file with the definitions; the code server loads it again when a user reloads the location.
        root: The folder from which that file imports.
        address: The socket of the code server. Only its user can connect, as the folder is the user's.
        port: The port of the page on loopback.
    """
    workspace = home / "workspace.yaml"
    workspace.write_text(WORKSPACE.format(socket=address, location=LOCATION), encoding="utf-8")
    served = ["-w", str(workspace)]
    return {
        CODE: [
            *(sys.executable, "-m", "dagster", "code-server", "start", "--socket", str(address)),
            *("-f", str(file), "-d", str(root), "--location-name", LOCATION, "--log-level", "warning"),
        ],
        PAGE: [sys.executable, "-m", "dagster_webserver", *served, "-h", "127.0.0.1", "-p", str(port)],
        DAEMON: [sys.executable, "-m", "dagster._daemon", "run", *served],
    }


def listens(address: Path) -> bool:
    """Return whether a process listens at the socket; the code server does once it has loaded the definitions."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        probe.connect(str(address))
        return True
    return False
