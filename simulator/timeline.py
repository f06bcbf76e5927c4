"""Virtual time. Law: the same seed gives the same events in the same order, and `check` runs after each of them.

An actor is a generator, or plain blocking code: `steps` runs that in a greenlet of its own, and `wait`, called anywhere
below, hands control back until the seconds have passed. One actor runs at a time.
"""

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial

from greenlet import getcurrent, greenlet

Life = Generator[float, None, None]
"""An actor's life: it yields how many seconds pass until it goes on."""


def steps(call: Callable[[], None]) -> Life:
    """The life of an actor that is plain code. Where the life is closed, GreenletExit ends the code wherever it waits, also
    in what it does on its way out."""
    code = greenlet(call)
    delay = code.switch()
    try:
        while not code.dead:
            yield delay
            delay = code.switch()
    finally:
        while not code.dead:
            code.throw()


def wait(seconds: float) -> None:
    """Lets the others go on for so long. Only in code that `steps` runs."""
    above = getcurrent().parent
    assert above is not None, "no process steps this code"
    above.switch(seconds)


@dataclass(slots=True, eq=False)
class Process:
    """An actor that can be stopped for good, or frozen until a moment."""

    life: Life
    alive: bool = True
    frozen_until: float = 0.0
    step: Callable[[], None] = lambda: None  # set where it begins

    def kill(self) -> None:
        """It never goes on. Its sessions stay until they expire, as when a machine dies."""
        self.alive = False
        self.life.close()


@dataclass(slots=True)
class Timeline:
    """Events in order of time, and of their making where the time is the same. `strike` may kill or freeze a process that
    is about to take a step."""

    check: Callable[[], None]
    strike: Callable[["Process"], None] = lambda _: None
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
        process.step = partial(self._step, process)
        self.after(delay, process.step)
        return process

    def run(self, until: float) -> None:
        """Lets everything happen that happens before `until`."""
        queue, check = self._queue, self.check
        while queue and queue[0][0] <= until:
            self.now, _, act = heapq.heappop(queue)
            act()
            self.events += 1
            check()
        self.now = until

    def _step(self, process: Process) -> None:
        if not process.alive:
            return
        if process.frozen_until <= self.now:
            self.strike(process)
        if process.frozen_until > self.now:
            self.at(process.frozen_until, process.step)
            return
        try:
            self.after(next(process.life), process.step)
        except StopIteration:
            process.alive = False
