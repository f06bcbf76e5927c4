"""`rota worker`: one agent and its Spark, until it is told to leave."""

import contextlib
import os
import re
import signal
import socket
import sys
import threading
import time
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING

import click

from rota.cli.log import Log
from rota.cli.watchdog import Watchdog
from rota.errors import ConfigError, CoordinationError, EnvironmentFailed, Forbidden, hide, masked
from rota.ids import checked_id
from rota.settings import VARIABLE, Settings, checked_endpoint, expanded

if TYPE_CHECKING:
    from rota.agent import Agent
    from rota.coordination.records import Live
    from rota.coordination.store import Store
    from rota.coordination.tree import Tree
    from rota.dataplane.endpoint import SparkServer

SOON, LATER = 0.25, 1.0  # seconds to the next look: while something is on its way, and while nothing is
STANDSTILL = 2.0  # session timeouts in which the loop must make a step, or its session is ended; 5 s at least
RESTARTS = 3  # starts of Spark in a row that never became ready, before the worker gives up
STARTING = 180.0  # seconds in which a Spark that was started must become ready: a cluster may have to make room for it

SECRET_CONF = re.compile(r"secret|password|token|access[.]?key|api[.]?key", re.IGNORECASE)  # as Spark redacts them


@click.command("worker")
@click.option("--group", default="default", show_default=True, help="The pool of workers to join.")
@click.option("--id", "worker", default=socket.gethostname, show_default="host name", help="The worker's id.")
@click.option("--zookeeper", help="host:port[,host:port...]; else ROTA_ZOOKEEPER.")
@click.option("--capacity", type=float, default=1.0, show_default=True, help="Its share beside the others.")
@click.option("--zone", help="Where it stands; counts as label zone.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="What it can do; repeatable.")
@click.option("--max-partitions", type=click.IntRange(min=0), help="It never holds more.")
@click.option("--master", help="Master of its own Spark Connect server.  [default: local[*]]")
@click.option(
    "--conf", "conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting of it; repeatable, ${VAR} is filled in."
)
@click.option("--spark", metavar="sc://HOST:PORT", help="A Spark Connect server run by somebody else.")
@click.option("--no-spark", is_flag=True, help="No server: each run makes a local Spark session.")
@click.option("--protocol", type=click.Choice(["assigned"]), default="assigned", show_default=True)
def command(
    group: str,
    worker: str,
    zookeeper: str | None,
    capacity: float,
    zone: str | None,
    labels: tuple[str, ...],
    max_partitions: int | None,
    master: str | None,
    conf: tuple[str, ...],
    spark: str | None,
    no_spark: bool,
    protocol: str,
) -> None:
    """Represent one worker in a group: join, own what the target says, hand over, and run its Spark.

    SIGTERM (or Ctrl-C) hands everything over and exits 0; a second one does not wait for runs. One line for each
    decision goes to standard error.
    """
    checked_id("worker", worker)
    checked_id("group", group)
    server = _server(worker, master, conf, spark, no_spark)
    from pydantic import ValidationError

    from rota.coordination.records import Live

    try:
        live = Live(
            endpoint=spark,
            protocol=protocol,  # type: ignore[arg-type]
            capacity=capacity,
            zone=zone,
            labels=_pairs("--label", labels),
            max_partitions=max_partitions,
            host=socket.gethostname(),
            pid=os.getpid(),
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"--{first['loc'][0]} {first['input']!r}: {first['msg']}. Give another value") from None
    settings = Settings.from_environment()
    sys.exit(Process(group, worker, live, server, settings, zookeeper or settings.zookeeper).run())


def _server(
    worker: str, master: str | None, conf: tuple[str, ...], spark: str | None, no_spark: bool
) -> "SparkServer | None":
    """The worker's own Spark, not started; None where it has none. ConfigError on options that clash, else no Java."""
    if sum((bool(spark), no_spark, bool(master or conf))) > 1:
        raise ConfigError("Give one of --spark, --no-spark, and --master with --conf")
    if spark is not None:
        checked_endpoint(spark)
    if spark or no_spark:
        return None
    from rota.dataplane.endpoint import SparkServer, SparkSettings
    from rota.java import find_java

    find_java()
    return SparkServer(worker, SparkSettings(master or "local[*]", _conf(conf)))


def _conf(texts: tuple[str, ...]) -> dict[str, str]:
    """Spark's settings, `${VAR}` filled in from the environment. ConfigError where a secret stands in the argument."""
    pairs = _pairs("--conf", texts)
    for key, value in pairs.items():
        if key == "spark.connect.authenticate.token":
            raise ConfigError(f"--conf {key}: rota sets it. Set ROTA_SPARK_TOKEN, here and for Dagster's runs")
        if SECRET_CONF.search(key):
            if value and not VARIABLE.search(value):
                raise ConfigError(
                    f"--conf {key}: everybody reads an argument. Give it as '{key}=${{VAR}}', and set VAR"
                )
            hide(expanded(value))
    return {key: expanded(value) for key, value in pairs.items()}


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = dict.fromkeys(texts, "")
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ConfigError(f"{option} {text!r}: give it as KEY=VALUE")
        del pairs[text]
        pairs[key] = value
    return pairs


class Process:
    """The process around an agent: connection, signals, Spark, usage. `run` returns the exit code."""

    def __init__(
        self,
        group: str,
        worker: str,
        live: "Live",
        server: "SparkServer | None",
        settings: Settings,
        hosts: str,
        starting: float = STARTING,
    ) -> None:
        self.group, self.worker, self.live, self.server = group, worker, live, server
        self.settings, self.hosts, self.starting = settings, hosts, starting
        self.wake = threading.Event()
        self.told = 0  # times
        self._ready = False  # whether Spark was ready at the last look
        self._failures = 0
        self._launched = 0.0  # when, on the monotonic clock
        self._watching = False
        self._steps = 0  # of the loop; together with what it asked the store, its progress
        self._log = Log(lambda lines: self._line("dropped", lines=lines))

    def run(self) -> int:
        """Until told to leave (0), or superseded or without Spark (2). Raises ConfigError, Unavailable at the start."""
        from rota.coordination.client import opened
        from rota.coordination.tree import Tree

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signal)
        try:
            with opened(self.settings, self.hosts) as store:
                tree = Tree(store, self.group)
                if not tree.there():
                    self._found(tree)
                if not self._start_spark():
                    return 0
                agent, bound = self._agent(tree, store.negotiated), max(5.0, STANDSTILL * store.negotiated)
                with Watchdog(
                    lambda: (self._steps, store.asked), store.active, lambda: self._stall(store, bound), bound
                ):
                    return self._serve(store, agent)
        finally:
            if self.server is not None:
                self.server.stop()
            self._log.close()

    def _found(self, tree: "Tree") -> None:
        from rota.coordination.access import Access

        who = Access.of(self.settings).me
        try:
            tree.found(protocol=self.live.protocol)
        except Forbidden:
            raise Forbidden(
                f"Group {self.group!r} is not there, and {who} may not found it. Start Dagster, whose "
                "membership sensor does, then start this worker again"
            ) from None

    def _agent(self, tree: object, timeout: float) -> "Agent":
        from rota.agent import Agent

        return Agent(
            tree,  # type: ignore[arg-type]
            self.worker,
            self.live,
            self.say,
            max_shutdown=self.settings.max_shutdown.total_seconds(),
            session_timeout=timeout,
        )

    def _serve(self, store: "Store", agent: "Agent") -> int:
        from rota.usage import Usage

        usage, obeyed = Usage(), 0
        while True:
            if (told := self.told) > obeyed:
                agent.leave(hurry=told > 1)
                obeyed = told
            for _ in agent.cycle():
                self._steps += 1
            if agent.done is not None:
                self.say("ended", why=agent.done.reason)
                return 0 if agent.done.clean or self.told else 2
            if agent.state.suspended is not None:
                self._watching = False  # a new connection knows nothing of former watches
            self._watch(store, agent)
            self._watch_spark()
            if (news := usage.news()) is not None:
                agent.publish(usage=news)
            self._steps += 1
            self.wake.wait(SOON if agent.unsettled or agent.state.incarnation is None else LATER)
            self.wake.clear()

    def _stall(self, store: "Store", bound: float) -> None:
        """The loop stands still: whoever would be live by this session alone is not."""
        with contextlib.suppress(CoordinationError):  # the old one is ended; the loop, if it goes on, looks again
            store.renew()
        self.say("stalled", seconds=bound)

    # --- signals, watches, words

    def _signal(self, _number: int, _frame: FrameType | None) -> None:
        self.told += 1
        self.wake.set()

    def _watch(self, store: "Store", agent: "Agent") -> None:
        """A hint that the target moved; polling alone would find it too."""
        if self._watching:
            return
        try:
            store.watch(agent.paths.assign(self.worker), self._changed)
        except CoordinationError:
            return
        self._watching = True

    def _changed(self) -> None:
        self._watching = False
        self.wake.set()

    def say(self, word: str, /, **facts: object) -> None:
        """One decision, one line on standard error. It does not wait until somebody reads it."""
        self._log.write(self._line(word, **facts))

    def _line(self, word: str, /, **facts: object) -> str:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        pairs = "".join(f" {key}={_quoted(value)}" for key, value in facts.items() if value is not None)
        return masked(f"{at} group={self.group} worker={self.worker} event={word}{pairs}")

    # --- Spark

    def _start_spark(self) -> bool:
        """Starts the worker's own Spark and waits until it is ready: who cannot work does not join. False: told to leave."""
        if self.server is None:
            return True
        self._launch(self.server)
        while not self.told:
            self._watch_spark()
            if self._ready:
                self.live = self.live.model_copy(update={"endpoint": self.server.url})
                return True
            time.sleep(0.1)
        return False

    def _launch(self, server: "SparkServer") -> None:
        pid, self._launched = server.start(), time.monotonic()
        self.say("spark-started", pid=pid, endpoint=server.url, master=server.settings.master, log=str(server.log))

    def _watch_spark(self) -> None:
        """A Spark that died, or was killed for its silence or a task that cannot be ended, is started again at its former
        address; one that is not ready in time started in vain, and after `RESTARTS` vain starts the worker gives up."""
        if self.server is None or self.told:
            return
        if self.server.pid is None:
            self._failures = 1 if self._ready else self._failures + 1
            self._ready = False
            self.say("spark-died", why=self.server.last_words(), failures=self._failures)
            if self._failures >= RESTARTS:
                raise EnvironmentFailed(
                    f"Spark of worker {self.worker} died {self._failures} times: {self.server.last_words()}. "
                    "Check --master and --conf"
                )
            self._launch(self.server)
        elif not self._ready and self.server.ready():
            self._ready, self._failures = True, 0
            self.say("spark-ready", endpoint=self.server.url, prepared="yes" if self.server.mapped() else "no")
        elif self._ready and self.server.silent():
            self._end_silent(self.server, self.server.silence)
        elif self._ready and (why := self.server.stuck()):
            self.say("spark-stuck", pid=self.server.pid, why=why)
            self._end(self.server)
        elif not self._ready and time.monotonic() - self._launched > self.starting:
            self._launched = time.monotonic()
            self._end_silent(self.server, self.starting)

    def _end_silent(self, server: "SparkServer", seconds: float) -> None:
        self.say("spark-silent", pid=server.pid, seconds=seconds)
        self._end(server)

    def _end(self, server: "SparkServer") -> None:
        server.kill()
        self.wake.set()


def _quoted(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f'"{text}"' if any(c in text for c in ' ="') or not text else text
