"""`rota worker` under `hasty_guard.py`. Called with the options of `rota worker`."""

from pathlib import Path

from rota.cli import worker
from rota.coordination import guarded

make_command = guarded.make_command
HASTY = str(Path(__file__).with_name("hasty_guard.py"))


def make_hasty(role: str, pid: int, pipe: int) -> list[str]:
    python, options, *rest = make_command(role, pid, pipe)
    return [python, options, HASTY, *rest]


guarded.make_command = make_hasty
worker.command()
