"""Restarts Dagster's processes after they end.

Invariant: the first restart is immediate. Each further one waits twice as long, up to `MAX_DELAY` seconds, until the process
has run for `SOUND` seconds. A process that ends `REPORTED` times in a row is reported once, with the end of its log.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from rota.local.stack import Stack

MAX_DELAY = 60.0  # seconds between two restarts
SOUND = 120.0  # seconds after which a process counts as started
REPORTED = 3  # ends in a row after which a process is reported


@dataclass(frozen=True, slots=True)
class Ended:
    """The restarts of one process: how many in a row, when the last one was, and when the next one is due."""

    count: int = 0
    started: float = 0.0
    due: float | None = None


def schedule(before: Ended, now: float) -> Ended:
    """Return the next restart of a process whose end was found at `now`."""
    count = 0 if now - before.started >= SOUND else before.count
    return replace(before, count=count + 1, due=now + (min(MAX_DELAY, 2.0 ** (count - 1)) if count else 0.0))


class Restarts:
    """Restarts the processes of these names in a stack; call `poll` regularly."""

    def __init__(
        self,
        stack: Stack,
        names: tuple[str, ...],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stack, self._names, self._say, self._clock = stack, names, say, clock
        self._ended = {name: Ended(started=-SOUND) for name in names}

    def poll(self) -> None:
        """Restart the ended processes whose restart is due."""
        now = self._clock()
        for name in self._names:
            child, state = self._stack.children.get(name), self._ended[name]
            if child is None or child.running:
                continue
            if state.due is None:
                state = self._ended[name] = schedule(state, now)
                if state.count == 1:
                    self._say(f"{name} {child.describe_end()}; it is started again")
                elif state.count == REPORTED:
                    why = f"{child.describe_end()}: {child.read_log_end()}"
                    self._say(
                        f"{name} does not stay, it {why}. It is tried again, at most once a minute. See {child.log}"
                    )
            if state.due is not None and now >= state.due:
                self._stack.restart(name)
                self._ended[name] = replace(state, started=now, due=None)
