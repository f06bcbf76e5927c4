"""Virtual time. Law: the same seed gives the same events in the same order, and `check` runs after each of them."""

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

Life = Generator[float, None, None]
"""An actor's life: it yields how many seconds pass until it goes on."""


@dataclass(slots=True, eq=False)
class Process:
    """An actor that can be stopped for good, or frozen until a moment."""

    life: Life
    alive: bool = True
    frozen_until: float = 0.0

    def kill(self) -> None:
        """It never goes on; nothing of it is cleaned up, as when a machine dies."""
        self.alive = False


@dataclass(slots=True)
class Timeline:
    """Events in order of time, and of their making where the time is the same."""

    check: Callable[[], None]
    now: float = 0.0
    events: int = 0
    _queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _made: int = 0

    def after(self, delay: float, act: Callable[[], None]) -> None:
        """Calls `act` when `delay` seconds have passed."""
        self._made += 1
        heapq.heappush(self._queue, (self.now + max(0.0, delay), self._made, act))

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Calls `act` at that moment."""
        self.after(when - self.now, act)

    def spawn(self, life: Life, delay: float = 0.0) -> Process:
        """An actor begins to live."""
        return self.begin(Process(life), delay)

    def begin(self, process: Process, delay: float = 0.0) -> Process:
        """The process takes its first step then."""
        self.after(delay, lambda: self._step(process))
        return process

    def run(self, until: float) -> None:
        """Lets everything happen that happens before `until`."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, act = heapq.heappop(self._queue)
            act()
            self.events += 1
            self.check()
        self.now = until

    def _step(self, process: Process) -> None:
        if not process.alive:
            return
        if process.frozen_until > self.now:
            self.at(process.frozen_until, lambda: self._step(process))
            return
        try:
            delay = next(process.life)
        except StopIteration:
            process.alive = False
            return
        self.after(delay, lambda: self._step(process))
