"""`rota try` as a user types it, on a running Spark."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from rota.cli import cli
from rota.errors import RotaError
from tests.demo.json_keys import documented, held


@dataclass(frozen=True)
class Tried:
    """Run it. Return the exit code, the document (empty for code 2), and the line of the error."""

    code: int
    seen: dict[str, Any]
    error: str

    @property
    def errors(self) -> list[str]:
        return [one["error"] for one in self.seen["partitions"] if one["error"]]


def try_file(file: Path, endpoint: str, *options: str) -> Tried:
    """Run `rota try FILE --json`, and assert that the document has the documented keys."""
    done = CliRunner().invoke(cli, ["try", str(file), "--spark", endpoint, "--json", *options])
    if isinstance(done.exception, RotaError):
        return Tried(2, {}, str(done.exception))
    assert isinstance(done.exception, SystemExit | None), done.exc_info
    seen = json.loads(done.stdout)
    said = documented("try")
    assert set(held(seen, said)) | {one for one in said if ".*" in one} == said
    return Tried(done.exit_code, seen, "")
