"""Asks what Dagster would not serve of a folder of pipelines, where Dagster need not run."""

import json
import subprocess
import sys
from pathlib import Path

from rota.errors import EnvironmentFailed

SECONDS = 120.0  # seconds in which Dagster must be imported and say what it serves
ASK = (
    "import json, sys; from pathlib import Path; from rota.dagster.location import find_unserved;"
    " print(json.dumps(find_unserved(Path(sys.argv[1]))))"
)


def find_unserved(folder: Path) -> dict[str, str]:
    """File -> why not all of it is served, one line each; empty where all is. It is what the check `every_file_served` says,
    for files as they are now. Takes the seconds in which Dagster is imported. Raises EnvironmentFailed where nobody can
    tell."""
    command = [sys.executable, "-c", ASK, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError) as error:
        why = done.stderr.strip().rpartition("\n")[2] if isinstance(error, (IndexError, ValueError)) else str(error)
        raise EnvironmentFailed(
            f"Nobody can tell what Dagster serves of {folder}: {why}. Install rota[dagster], then try again"
        ) from None
