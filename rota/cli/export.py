"""`rota export`: serves the metrics of a group to Prometheus."""

import gc
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from rota.cli import view
from rota.cli.group import group_option, open_group
from rota.errors import ConfigError, RotaError, printable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from rota.coordination.group_state import GroupState
    from rota.face.metrics import Measured


ONCE = 60.0  # seconds in which `--once` observes the group


@click.command("export")
@group_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at; 0.0.0.0: all of them.")
@click.option("--port", default=9745, show_default=True, type=click.IntRange(0, 65535), help="The port; 0: a free one.")
@click.option("--once", is_flag=True, help="Print the metrics once instead, and exit.")
@click.option("--rules", is_flag=True, help="Print the alert rules for Prometheus instead, as YAML, and exit.")
@click.option("--runbook", help="The address of docs/troubleshooting.md, to which the alerts of --rules link.")
def command(group: str, host: str, port: int, once: bool, rules: bool, runbook: str | None) -> None:
    """Serve the metrics of a group to Prometheus, at /metrics, until Ctrl-C.

    It observes the group when it is scraped, with the rights of a reader, and keeps no state. Start one for each group.
    Metrics have no login: listen where only Prometheus can connect.
    """
    if rules:
        from rota.face.rules import RUNBOOK, make_rules

        click.echo(make_rules(runbook or RUNBOOK), nl=False)
        return
    require_library()
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    with open_group(group) as tree:
        registry = CollectorRegistry(auto_describe=False)
        collector = GroupCollector(tree, ONCE if once else None)
        registry.register(collector)
        if once:
            click.echo(generate_latest(registry), nl=False)
            sys.exit(0 if collector.up else 2)
        ProcessCollector(registry=registry)
        serve(registry, host, port)


def require_library() -> None:
    """Raise ConfigError if the library for metrics is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(f"Metrics need the library {error.name}. Type: pip install 'rota[metrics]'") from None


def serve(registry: "CollectorRegistry", host: str, port: int) -> None:
    """Serve the registry until SIGINT or SIGTERM. Raises ConfigError if the address cannot be used."""
    from prometheus_client import start_http_server

    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigError(
            f"Metrics cannot be served at {host}:{port} ({error.strerror}). Choose another --port or --host"
        ) from None
    end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end.set())
    view.print_line(f"Metrics are at http://{host}:{server.server_port}/metrics")
    end.wait()
    server.shutdown()


class GroupCollector:
    """Collects the metrics of a group: those of the exporter always, and those of the group if it could be observed.

    Scrapes that come within some seconds share one observation. The first line of a failure is written to standard error.
    """

    def __init__(self, tree: "GroupState", wait: float | None = None) -> None:
        from rota.cli.meter import GroupMeter
        from rota.face.shared import WAIT, Shared

        self.group = tree.group
        self.up = False
        self._wait = WAIT if wait is None else wait
        self._meter = GroupMeter(tree)
        self._shared = Shared(self._measure)
        self._last, self._seconds, self._why = 0.0, 0.0, ""

    def collect(self) -> "Iterator[Metric]":
        """Yield the metrics."""
        from rota.face.metrics import make_metrics, make_own_metrics

        found, why = None, ""
        try:
            found = self._shared.get(self._wait)
        except RotaError as error:
            why = str(error)
        except Exception as error:  # a fault of rota: the next scrape tries again
            why = printable(f"{type(error).__name__}: {error}")
        if why and why != self._why:
            view.print_error(why)
        self._why, self.up = why, found is not None
        yield from make_own_metrics(self.group, self.up, self._last, self._seconds)
        if found is not None:
            yield from make_metrics(found)

    def _measure(self) -> "Measured":
        began = time.monotonic()
        measured = self._meter.measure()
        if not self._last:
            gc.freeze()  # what was imported for it stays: the collector passes over it from now on
        self._last, self._seconds = time.time(), time.monotonic() - began
        return measured
