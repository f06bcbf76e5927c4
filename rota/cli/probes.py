"""Answers of a worker over HTTP, for Kubernetes and Prometheus: `/livez`, `/readyz` and `/metrics`.

Laws:
1. An answer only reads values of this process. It waits for neither ZooKeeper nor Spark nor the loop.
2. `/livez` fails only if the loop made no step for `bound` seconds. It succeeds while ZooKeeper or Spark does not answer:
   another process would not help.
3. `/readyz` succeeds once the worker can own partitions and has read its target. A worker without a target, such as a
   cordoned one, is ready `UNTARGETED` seconds after its join: else it would hold up each rolling restart.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread

from rota.errors import ConfigError

UNTARGETED = 60.0  # seconds after its join in which a worker waits for a target before it is ready


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """What a worker's process knows of itself.

    Args:
        steps: another value after each step of its loop.
        bound: the seconds without a step after which the loop counts as stalled.
        incarnation: None until it has joined.
        connected: its session with ZooKeeper is good.
        unready: why its Spark or its first run is not ready; empty if both are.
        has_target: it has read its target.
        partitions: those that it owns.
        spark_starts: how often its Spark was started.
    """

    steps: object = 0
    bound: float = 0.0
    incarnation: str | None = None
    connected: bool = False
    unready: str = ""
    has_target: bool = False
    partitions: int = 0
    spark_starts: int = 0


class Probes:
    """The answers to requests. `look` returns what the worker's process knows now."""

    def __init__(
        self, group: str, worker: str, look: Callable[[], WorkerSeen], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._labels, self._look, self._clock = f'{{group="{group}",worker="{worker}"}}', look, clock
        self._steps: tuple[object, float] = None, clock()  # the last new value, and when it was seen
        self._joined: tuple[str | None, float] = None, clock()  # the last incarnation, and when it was seen

    def answer(self, path: str) -> tuple[int, str]:
        """Return the status and the text for a path."""
        seen, now = self._look(), self._clock()
        if seen.steps != self._steps[0]:
            self._steps = seen.steps, now
        if seen.incarnation != self._joined[0]:
            self._joined = seen.incarnation, now
        if path == "/livez":
            still = now - self._steps[1]
            return (200, "ok\n") if still <= seen.bound else (503, f"the loop made no step for {still:.0f} s\n")
        why = self._explain_unready(seen, now)
        if path == "/readyz":
            return (503, f"{why}\n") if why else (200, "ok\n")
        return (200, self._format(seen, ready=not why)) if path == "/metrics" else (404, "")

    def _explain_unready(self, seen: WorkerSeen, now: float) -> str:
        if seen.incarnation is None:
            return seen.unready or "it has not joined"
        if not seen.connected:
            return "ZooKeeper does not answer"
        waits = not seen.has_target and now - self._joined[1] < UNTARGETED
        return seen.unready or ("it has no target yet" if waits else "")

    def _format(self, seen: WorkerSeen, ready: bool) -> str:
        """Return the metrics. An id needs no escape in a label."""
        values = {
            "rota_worker_ready": ("gauge", ready, "1 if /readyz succeeds"),
            "rota_worker_connected": ("gauge", seen.connected, "1 if its session with ZooKeeper is good"),
            "rota_worker_spark_starts_total": ("counter", seen.spark_starts, "How often its Spark was started"),
            "rota_worker_partitions": ("gauge", seen.partitions, "The partitions that it owns"),
        }
        return "".join(
            f"# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{self._labels} {int(value)}\n"
            for name, (kind, value, help) in values.items()
        )


@contextmanager
def serve_probes(probes: Probes, port: int | None) -> Iterator[None]:
    """Answer at this port of all addresses; without a port, do nothing. Raises ConfigError if the port is taken."""
    if port is None:
        yield
        return
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = probes.answer(self.path.partition("?")[0])
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Log nothing: standard error has the worker's decisions only."""

    try:
        server = ThreadingHTTPServer(("", port), Handler)
    except OSError as error:
        raise ConfigError(
            f"Probes cannot be served at port {port} ({error.strerror}). Choose another --probe-port"
        ) from None
    with server:
        Thread(target=server.serve_forever, name="rota-probes", daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
