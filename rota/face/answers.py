"""Bounds how long a caller waits for stores that may not answer.

Law: `gather` returns within its bound. A question without an answer continues in a daemon thread of its own. It is not asked
again before that thread has ended, so a store that never answers costs one thread.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Questions(Generic[T]):
    """Asks the same questions, by name, repeatedly. Not thread-safe."""

    def __init__(self) -> None:
        self._open: dict[str, Future[T]] = {}  # asked, and not answered yet

    def gather(self, questions: Mapping[str, Callable[[], T]], seconds: float) -> dict[str, T]:
        """Ask all questions at once. Return the answers that came within `seconds`. Raise what a question raised."""
        self._open = {name: late for name, late in self._open.items() if not late.done()}
        asked = {name: _ask(name, question) for name, question in questions.items() if name not in self._open}
        wait(asked.values(), timeout=seconds)
        self._open |= {name: one for name, one in asked.items() if not one.done()}
        return {name: one.result() for name, one in asked.items() if name not in self._open}


def _ask(name: str, question: Callable[[], T]) -> "Future[T]":
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(question())
        except BaseException as error:  # the caller gets it
            answer.set_exception(error)

    Thread(target=run, name=f"rota-asks-{name}", daemon=True).start()
    return answer
