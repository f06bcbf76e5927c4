"""Writes lines to standard error without waiting for the reader.

Law: `write` never waits. Up to `MAX_QUEUED_LINES` lines are queued for the reader. Further lines are dropped and
counted; the count is written in their place as soon as there is room.
"""

import os
import queue
import threading
from collections.abc import Callable

from rota.machine import start_lasting

MAX_QUEUED_LINES = 1000  # lines kept for the reader
FLUSHING = 2.0  # seconds for which `close` waits
STDERR = 2


class Log:
    """Standard error. `gap` formats the line with the number of dropped lines. Safe for several threads."""

    def __init__(self, gap: Callable[[int], str], descriptor: int = STDERR) -> None:
        self._gap, self._descriptor = gap, descriptor
        self.lines: queue.Queue[str | None] = queue.Queue(MAX_QUEUED_LINES)
        self._lock = threading.Lock()
        self._dropped = 0
        self._writer: threading.Thread | None = None

    def write(self, line: str) -> None:
        """Queue the line, which has no newline at its end."""
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
        """Wait until all lines are written, at most twice `FLUSHING` seconds."""
        if self._writer is None:
            return
        try:
            self.lines.put(None, timeout=FLUSHING)
        except queue.Full:
            return
        self._writer.join(FLUSHING)

    def _drain(self) -> bool:
        """Write a line past Python's buffer, and return whether there are more. The lock of a waiting buffered write
        would keep the process from ending. Errors (the reader is gone, the disk is full) stop no worker.
        """
        if (line := self.lines.get()) is None:
            return False
        left = f"{line}\n".encode(errors="backslashreplace")
        while left:
            left = left[os.write(self._descriptor, left) :]
        return True

    def _miss(self, _: Exception) -> None:
        with self._lock:
            self._dropped += 1
