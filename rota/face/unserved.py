"""Finds the pipeline files that Dagster would not serve. Dagster need not run."""

import json
import subprocess
import sys
from pathlib import Path

from rota.errors import EnvironmentFailed

SECONDS = 120.0  # seconds in which Dagster must be imported and list what it serves
ASK = (
    "import json, sys; from pathlib import Path; from rota.dagster.location import find_unserved;"
    " print(json.dumps(find_unserved(Path(sys.argv[1]))))"
)


def find_unserved(folder: Path) -> dict[str, str]:
    """Return file -> why it is not served completely, one line each; empty if all are.

    The result is that of the check `every_file_served`, for the files as they are now. The call imports Dagster in another
    process, which takes seconds.

    Raises:
        EnvironmentFailed: the process printed no result.
    """
    command = [sys.executable, "-c", ASK, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError) as error:
        why = done.stderr.strip().rpartition("\n")[2] if isinstance(error, (IndexError, ValueError)) else str(error)
        raise EnvironmentFailed(
            f"Cannot list what Dagster serves of {folder}: {why}. Install rota[dagster], then try again"
        ) from None
