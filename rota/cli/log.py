"""Lines to standard error for a process that must not stand still because nobody reads them.

Law: `write` never waits. What the reader does not take is kept, `MOST` lines of it; what comes then is dropped and counted,
and the count stands in the log where the gap is, once there is room.
"""

import os
import queue
import threading
from collections.abc import Callable

MOST = 1000  # lines that wait for the reader
PATIENCE = 2.0  # seconds that `close` gives him
STDERR = 2


class Log:
    """Standard error; `gap` gives the line that says how many lines were dropped. Safe to use from many threads."""

    def __init__(self, gap: Callable[[int], str], descriptor: int = STDERR) -> None:
        self._gap, self._descriptor = gap, descriptor
        self._lines: queue.Queue[str | None] = queue.Queue(MOST)
        self._lock = threading.Lock()
        self._dropped = 0
        self._writer = threading.Thread(target=self._drain, name="rota-log", daemon=True)

    def write(self, line: str) -> None:
        """The line, without its end, when it is its turn."""
        with self._lock:
            if self._writer.ident is None:
                self._writer.start()
            try:
                if self._dropped:
                    self._lines.put_nowait(self._gap(self._dropped))
                    self._dropped = 0
                self._lines.put_nowait(line)
            except queue.Full:
                self._dropped += 1

    def close(self) -> None:
        """Waits until all is written, for `PATIENCE` seconds at most."""
        if self._writer.ident is None:
            return
        try:
            self._lines.put(None, timeout=PATIENCE)
        except queue.Full:
            return
        self._writer.join(PATIENCE)

    def _drain(self) -> None:
        """Past Python's own buffer: its lock, held in a write that waits, would hold up the end of the process."""
        while (line := self._lines.get()) is not None:
            left = f"{line}\n".encode(errors="backslashreplace")
            try:
                while left:
                    left = left[os.write(self._descriptor, left) :]
            except OSError:  # the reader is gone, the disk is full: the worker goes on
                with self._lock:
                    self._dropped += 1
