"""The memory of a command's last observation, in a file, so that a need ages from one `rota status --check` to the
next.

Laws:
1. An unreadable or unwritable memory is no error: the command then uses only its own observations.
2. A group has a file of its own, named by the group's id. A command replaces the file as a whole.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rota.face.memory import Memory

_JSON = TypeAdapter(Memory)


def find_file(group: str) -> Path:
    """Return the file of the group with this id, below `XDG_STATE_HOME`."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "rota" / f"needs-{group}.json"


def read_memory(group: str, now: float) -> Memory:
    """Return what the last command left, for a look at `now` (server seconds); an empty memory if there is none."""
    try:
        return _JSON.validate_json(find_file(group).read_bytes()).shorten_pause(now, watched=False)
    except (OSError, ValidationError, RuntimeError):  # RuntimeError: the user has no home
        return Memory()


def write_memory(group: str, memory: Memory) -> None:
    """Keep the memory for the next command."""
    with suppress(OSError, RuntimeError):
        file = find_file(group)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".needs-", delete=False) as new:
            new.write(_JSON.dump_json(memory))
        os.replace(new.name, file)
