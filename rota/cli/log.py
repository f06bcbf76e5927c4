"""Writes lines to standard error without ever waiting for whoever reads them.

Law: `write` never waits. Up to `MOST` lines are kept for the reader. Further lines are dropped and counted, and the count is
written where they are missing, once there is room.
"""

import os
import queue
import threading
from collections.abc import Callable

from rota.machine import start_lasting

MOST = 1000  # lines kept for the reader
FLUSHING = 2.0  # seconds for which `close` waits
STDERR = 2


class Log:
    """Standard error. `gap` makes the line that says how many lines were dropped. Safe for several threads."""

    def __init__(self, gap: Callable[[int], str], descriptor: int = STDERR) -> None:
        self._gap, self._descriptor = gap, descriptor
        self.lines: queue.Queue[str | None] = queue.Queue(MOST)
        self._lock = threading.Lock()
        self._dropped = 0
        self._writer: threading.Thread | None = None

    def write(self, line: str) -> None:
        """Queues the line, which has no newline at its end."""
        with self._lock:
            if self._writer is None:
                self._writer = start_lasting("rota-log", self._drain, self._miss)
            try:
                if self._dropped:
                    self.lines.put_nowait(self._gap(self._dropped))
                    self._dropped = 0
                self.lines.put_nowait(line)
            except queue.Full:
                self._dropped += 1

    def close(self) -> None:
        """Waits until all lines are written, at most twice `FLUSHING` seconds."""
        if self._writer is None:
            return
        try:
            self.lines.put(None, timeout=FLUSHING)
        except queue.Full:
            return
        self._writer.join(FLUSHING)

    def _drain(self) -> bool:
        """Writes a line past Python's buffer: the lock of a write that waits would keep the process from ending. Whether
        there are more. What it raises (the reader is gone, the disk is full) stops no worker."""
        if (line := self.lines.get()) is None:
            return False
        left = f"{line}\n".encode(errors="backslashreplace")
        while left:
            left = left[os.write(self._descriptor, left) :]
        return True

    def _miss(self, _: Exception) -> None:
        with self._lock:
            self._dropped += 1
