"""Ends a pause when ZooKeeper tells of something, so that the pause can be long.

Law: what happens after `listen` ends the next `wait`, also if nobody waits yet. So whoever listens, looks and waits, in this
order, misses nothing.
"""

import threading

from rota.coordination.store import Store


class Bell:
    """Rings when the znode that it listens to, or its list of children, changed, and when somebody rings it."""

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._listening = False

    def listen(self, store: Store, path: str, *, anew: bool = False) -> None:
        """Listens, unless it does already: a watch calls once. A new connection knows nothing of former watches: `anew`.
        Raises Unavailable."""
        if anew or not self._listening:
            self._listening = True  # before: the watch may call at once
            try:
                store.watch(path, self._hear)
            except BaseException:
                self._listening = False
                raise

    def _hear(self) -> None:
        self._listening = False
        self.ring()

    def ring(self) -> None:
        """Ends the wait, or the next one. Waits for nothing: a signal's handler may call it."""
        self._rung.set()

    def wait(self, seconds: float) -> None:
        """Returns when it rings, or after so many seconds."""
        self._rung.wait(seconds)
        self._rung.clear()
