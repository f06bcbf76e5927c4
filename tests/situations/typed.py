"""`rota status --check`, typed while others look: each in a process of its own, a few at once, with a bound."""

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

AT_ONCE = 4  # most of the time they wait whether something heals
BOUND = 200.0  # seconds; the command itself waits up to 100 s for what may heal


@dataclass(frozen=True, slots=True)
class Said:
    """The exit code, and the lines that need a person."""

    code: int
    lines: tuple[str, ...]


class Typist:
    """Types the command once for each group, or for each pipeline of one."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._asked: dict[tuple[str, str], Future[Said]] = {}

    def type(self, group: str, pipeline: str = "") -> Said | None:
        """The answer; None until it is there. The same question is typed once."""
        if (group, pipeline) not in self._asked:
            self._asked[group, pipeline] = self._pool.submit(ask, group, pipeline)
        asked = self._asked[group, pipeline]
        return asked.result() if asked.done() else None

    def close(self) -> None:
        """Waits for what was typed."""
        self._pool.shutdown()


def ask(group: str, pipeline: str = "") -> Said:
    """What the command prints in the environment of this process."""
    words = ["--pipeline", pipeline] if pipeline else []
    command = [sys.executable, "-m", "rota", "status", "--check", "--json", "--group", group, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, start_new_session=True)
    except subprocess.TimeoutExpired:
        return Said(-1, (f"no answer within {BOUND:.0f} s",))
    try:
        needs = json.loads(done.stdout)["needs"]
    except (ValueError, KeyError):
        return Said(done.returncode, (f"{done.stdout} {done.stderr}".strip(),))
    return Said(done.returncode, tuple(need["line"] for need in needs if need["person"]))
