"""A change notification that ends a pause early, so that the pause can be long.

Law: a change after `listen` ends the next `wait`, also if it happens before `wait` is called. So a caller that listens,
reads and waits, in this order, misses no change.
"""

import threading

from rota.coordination.store import Store


class ChangeSignal:
    """Is set when the watched znode or its list of children changes, and by `set`."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._listening = False

    def listen(self, store: Store, path: str, *, anew: bool = False) -> None:
        """Sets the watch, unless it is set: a watch fires once. After a reconnection the watch is lost: pass `anew`.

        Raises Unavailable.
        """
        if anew or not self._listening:
            self._listening = True  # set first: the watch may fire at once
            try:
                store.watch(path, self._hear)
            except BaseException:
                self._listening = False
                raise

    def _hear(self) -> None:
        self._listening = False
        self.set()

    def set(self) -> None:
        """Ends the present wait, or the next one. It does not block, so a signal handler may call it."""
        self._set.set()

    def wait(self, seconds: float) -> None:
        """Returns when the signal is set, or after the given seconds."""
        self._set.wait(seconds)
        self._set.clear()
