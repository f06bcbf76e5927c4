"""Virtual time. Law: the same seed gives the same events in the same order, and `check` runs after each of them.

An actor is a generator, or blocking code: `steps` runs blocking code in a greenlet, in which `wait` yields control until the
seconds have passed. One actor runs at a time.
"""

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial

from greenlet import getcurrent, greenlet

Life = Generator[float, None, None]
"""An actor's life: it yields the seconds until its next step."""


def steps(call: Callable[[], None]) -> Life:
    """Return the life of an actor that is blocking code. If the life is closed, each `wait` of the code raises GreenletExit,
    also while the code unwinds."""
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
    """Let other actors run for these seconds. Only for code that `steps` runs."""
    above = getcurrent().parent
    assert above is not None, "no process steps this code"
    above.switch(seconds)


@dataclass(slots=True, eq=False)
class Process:
    """An actor that can be killed, or frozen until a moment."""

    life: Life
    alive: bool = True
    frozen_until: float = 0.0
    step: Callable[[], None] = lambda: None  # set by `Timeline.begin`

    def kill(self) -> None:
        """End the process without another step. Its sessions stay until they expire, as when a machine dies."""
        self.alive = False
        self.life.close()


@dataclass(slots=True)
class Timeline:
    """Events in order of time; at one time, in the order in which they were made. `strike` may kill or freeze a process
    before its step."""

    check: Callable[[], None]
    strike: Callable[["Process"], None] = lambda _: None
    now: float = 0.0
    events: int = 0
    _queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _made: int = 0

    def after(self, delay: float, act: Callable[[], None]) -> None:
        """Call `act` after `delay` seconds."""
        self._made += 1
        heapq.heappush(self._queue, (self.now + max(0.0, delay), self._made, act))

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call `act` at this time."""
        self.after(when - self.now, act)

    def spawn(self, life: Life, delay: float = 0.0) -> Process:
        """Start an actor after `delay` seconds, and return its process."""
        return self.begin(Process(life), delay)

    def begin(self, process: Process, delay: float = 0.0) -> Process:
        """Let the process take its first step after `delay` seconds."""
        process.step = partial(self._step, process)
        self.after(delay, process.step)
        return process

    def run(self, until: float) -> None:
        """Run all events up to `until`."""
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
