"""`rota worker`: runs one agent and its Spark until it is asked to leave."""

import contextlib
import json
import os
import signal
import socket
import sys
import time
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING

import click

from rota.cli.log import Log
from rota.cli.probes import Probes, WorkerSeen, serve_probes
from rota.cli.watchdog import Watchdog
from rota.cli.worker_options import make_server, parse_pairs
from rota.coordination.change_signal import ChangeSignal
from rota.errors import ConfigError, CoordinationError, EnvironmentFailed, mask
from rota.ids import checked_id
from rota.machine import name_machine
from rota.settings import Settings

if TYPE_CHECKING:
    from rota.coordination.guarded import SessionLink
    from rota.coordination.records import Live
    from rota.coordination.store import Store
    from rota.dataplane.spark.spark_server import SparkServer
    from rota.group.agent import Agent

BUSY_PAUSE, IDLE_PAUSE = 0.25, 1.0  # seconds between two cycles: while it joins, claims or releases, and otherwise
STALL = 2.0  # session timeouts without a step of the loop, after which the watchdog ends the session; 5 s at least
RESTARTS = 3  # starts of Spark in a row that never became ready, before the worker gives up
STARTING = 180.0  # seconds in which a started Spark must become ready: a cluster may have to free cores for it
EXECUTOR_WAIT = 60.0  # seconds without an executor after which the worker reports that its Spark cannot work


@click.command("worker")
@click.option("--group", default="default", show_default=True, help="The group to join.")
@click.option("--id", "worker", default=socket.gethostname, show_default="host name", help="The worker's id.")
@click.option("--zookeeper", help="host:port[,host:port...][/path]; else ROTA_ZOOKEEPER.")
@click.option("--capacity", type=float, default=1.0, show_default=True, help="Its share of the load.")
@click.option("--zone", help="Its zone; counts as the label zone.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label; repeatable.")
@click.option(
    "--max-partitions",
    type=click.IntRange(min=0),
    help="The most partitions that it owns at a time; 0 joins without any.",
)
@click.option("--ordinal", type=click.IntRange(min=0), help="Its number, under protocol ordinal.  [default: its id's]")
@click.option(
    "--replicas", type=click.IntRange(min=1), help="How many share, under protocol ordinal.  [default: the live]"
)
@click.option("--master", help="Spark master of its own Spark Connect server.  [default: local[*]]")
@click.option(
    "--conf",
    "conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A Spark setting of that server; repeatable, ${VAR} is replaced.",
)
@click.option("--spark", metavar="sc://HOST:PORT", help="The address of a Spark Connect server that runs already.")
@click.option("--no-spark", is_flag=True, help="No Spark Connect server: each run starts a local Spark.")
@click.option(
    "--probe-port",
    type=click.IntRange(1, 65535),
    help="Serve /livez, /readyz and /metrics at this port of all addresses.",
)
def command(
    group: str,
    worker: str,
    zookeeper: str | None,
    capacity: float,
    zone: str | None,
    labels: tuple[str, ...],
    max_partitions: int | None,
    ordinal: int | None,
    replicas: int | None,
    master: str | None,
    conf: tuple[str, ...],
    spark: str | None,
    no_spark: bool,
    probe_port: int | None,
) -> None:
    """Run one worker of a group and its Spark.

    It joins the group at once, under the host's name without --id, and partitions move to it. It owns the partitions of its
    target and hands them over. After SIGTERM (or Ctrl-C) it hands over all of them and exits with 0; a second signal does
    not wait for runs. Each decision is a line on standard error.
    """
    checked_id("worker", worker)
    checked_id("group", group)
    server = make_server(worker, master, conf, spark, no_spark)
    from pydantic import ValidationError

    from rota.coordination.guarded import supervise
    from rota.coordination.records import Live

    settings, guard = Settings.from_environment(), supervise()

    try:
        live = Live(
            endpoint=spark,
            capacity=capacity,
            zone=zone,
            labels=parse_pairs("--label", labels),
            max_partitions=max_partitions,
            host=socket.gethostname(),
            machine=name_machine(),
            pid=os.getpid(),
            awaits_run=max_partitions != 0,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"--{first['loc'][0]} {first['input']!r}: {first['msg']}. Give another value") from None
    if sys.stderr.isatty() and max_partitions != 0:
        hints = f"It joins group {group} as {worker}, and partitions move to it within seconds. Ctrl-C hands them over."
        click.echo(f"{hints} To join without any: --max-partitions 0", err=True)
    process = Process(group, worker, live, server, settings, zookeeper or settings.zookeeper, guard=guard)
    process.ordinal, process.replicas, process.probe_port = ordinal, replicas, probe_port
    sys.exit(process.run())


class Process:
    """The process around an agent: its connection, signals, Spark and usage. `run` returns the exit code."""

    def __init__(
        self,
        group: str,
        worker: str,
        live: "Live",
        server: "SparkServer | None",
        settings: Settings,
        hosts: str,
        starting: float = STARTING,
        guard: "SessionLink | None" = None,
    ) -> None:
        self.group, self.worker, self.live, self.server = group, worker, live, server
        self.settings, self.hosts, self.starting, self.guard = settings, hosts, starting, guard
        self.ordinal: int | None = None  # and how many share, as it was started; see protocol `ordinal`
        self.replicas: int | None = None
        self.probe_port: int | None = None
        self._bound = max(5.0, STALL * settings.session_timeout.total_seconds())
        self._spark_starts = 0
        self.changed = ChangeSignal()  # set by a new target, and by other reasons to end a pause
        self.signals = 0  # SIGTERM and SIGINT so far
        self._ready = self._is_able = False  # whether Spark was ready at the last check, and able to work
        self._failures = 0
        self._launched = 0.0  # when Spark was started, on the monotonic clock
        self._able_at = 0.0  # when Spark was last able to work, or became ready
        self._agent: Agent | None = None
        self._steps = 0  # of the loop; the watchdog compares them and the number of requests to the store
        self.log = Log(lambda lines: self._format_line("dropped", lines=lines))

    def run(self) -> int:
        """Run until the worker is asked to leave (returns 0), or is superseded (2).

        Raises:
            ConfigError: a setting is wrong, or this build does not read and write the level of the group.
            Unavailable: ZooKeeper does not answer at the start.
            EnvironmentFailed: Spark does not stay up.
        """
        from rota.coordination.client import opened
        from rota.coordination.group_state import GroupState

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._count_signal)
        try:
            probes = Probes(self.group, self.worker, self.look)
            with opened(self.settings, self.hosts, self.guard) as store, serve_probes(probes, self.probe_port):
                tree = GroupState(store, self.group)
                if not self.start_spark(warms=tree.exists() and bool(tree.live())):
                    return 0
                agent, bound = self._make_agent(tree, store.negotiated), max(5.0, STALL * store.negotiated)
                self._agent, self._bound = agent, bound
                with Watchdog(
                    lambda: (self._steps, store.asked),
                    store.active,
                    lambda: self._end_stalled_session(store, bound),
                    bound,
                    lambda error: self.say("notice", reason=f"its watchdog continues after {error!r}"),
                ):
                    return self._serve(store, agent)
        except (OSError, MemoryError) as error:  # the supervisor restarts it, or reports it
            raise EnvironmentFailed(
                f"Worker {self.worker} ends: {error!r}. Its session ends: start it again"
            ) from error
        finally:
            if self.server is not None:
                self.server.stop()
            self.log.close()

    def look(self) -> WorkerSeen:
        """Return what this process knows of itself, from any thread."""
        steps, starts, agent = self._steps, self._spark_starts, self._agent
        spark = "its Spark is not ready" if self.server is not None and not self._ready else ""
        if agent is None:
            return WorkerSeen(steps, self._bound, unready=spark, spark_starts=starts)
        unready = spark or agent.live.unable or ("it awaits its first run" if agent.live.awaits_run else "")
        state, store = agent.state, agent.store
        return WorkerSeen(
            (steps, store.asked), self._bound, state.incarnation, store.active(), unready, state.epoch is not None,
            len(state.held), starts,
        )  # fmt: skip

    def _make_agent(self, tree: object, timeout: float) -> "Agent":
        from rota.group.agent import Agent

        return Agent(
            tree,  # type: ignore[arg-type]
            self.worker,
            self.live,
            self.say,
            max_shutdown=self.settings.max_shutdown.total_seconds(),
            session_timeout=timeout,
            ordinal=self.ordinal,
            replicas=self.replicas,
        )

    def _serve(self, store: "Store", agent: "Agent") -> int:
        from rota.group.usage import Usage

        usage, obeyed = Usage(), 0
        while True:
            if (signals := self.signals) > obeyed:
                agent.leave(hurry=signals > 1)
                obeyed = signals
            if store.active():
                with contextlib.suppress(CoordinationError):  # without the watch, a new target is read after the pause
                    self.changed.listen(store, agent.paths.assign(self.worker), anew=agent.state.suspended is not None)
            for _ in agent.cycle():
                self._steps += 1
            if agent.done is not None:
                self.say("ended", reason=agent.done.reason)
                return 0 if agent.done.clean or self.signals else 2
            self.watch_spark()
            if (news := usage.read_news()) is not None:
                agent.publish(usage=news)
            self._steps += 1
            self.changed.wait(agent.find_pause(BUSY_PAUSE, IDLE_PAUSE))

    def _end_stalled_session(self, store: "Store", bound: float) -> None:
        """End the session of a stalled loop: the worker counts as gone."""
        with contextlib.suppress(CoordinationError):  # the old session is ended; the loop joins again if it continues
            store.renew()
        self.say("stalled", seconds=bound)

    # --- signals, log

    def _count_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.signals += 1
        self.changed.set()

    def say(self, word: str, /, **facts: object) -> None:
        """Write one decision as one line to standard error, without waiting for a reader."""
        self.log.write(self._format_line(word, **facts))

    def _format_line(self, word: str, /, **facts: object) -> str:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        pairs = "".join(f" {key}={_quote(value)}" for key, value in facts.items() if value is not None)
        return mask(f"{at} group={self.group} worker={self.worker} event={word}{pairs}")

    # --- Spark

    def start_spark(self, warms: bool = True) -> bool:
        """Start the worker's own Spark, and wait until it is ready and, if it `warms`, warm. The worker joins after that.

        The first worker of a group does not warm its Spark, because no other worker would consume its partitions meanwhile.
        A Spark that is not warm `EXECUTOR_WAIT` seconds later makes the worker `unable`: it joins and owns no partition.
        Returns False if the worker was asked to leave meanwhile. Raises EnvironmentFailed.
        """
        if self.server is None:
            return True
        if greed := self.server.settings.explain_greed():
            self.say("notice", reason=greed)
        self.server.warms = warms
        self._launch(self.server)
        while not self.signals:
            self.watch_spark()
            if self._ready and (self._is_able or self.live.unable):
                self.live = self.live.model_copy(update={"endpoint": self.server.url})
                return True
            self._steps += 1
            time.sleep(0.1)
        return False

    def _launch(self, server: "SparkServer") -> None:
        pid, self._launched = server.start(), time.monotonic()
        self._spark_starts += 1
        self.say("spark-started", pid=pid, endpoint=server.url, master=server.settings.master, log=str(server.log))

    def watch_spark(self) -> None:
        """Restart a dead Spark at the same address; kill one that is silent or has a task that cannot be cancelled.

        Raises EnvironmentFailed after `RESTARTS` starts in a row that were not ready in `starting` seconds.
        """
        if self.server is None or self.signals:
            return
        if self.server.pid is None:
            self._failures = 1 if self._ready else self._failures + 1
            self._ready = False
            self.say("spark-died", reason=self.server.last_words(), failures=self._failures)
            if self._failures >= RESTARTS:
                raise EnvironmentFailed(
                    f"Spark of worker {self.worker} died {self._failures} times: {self.server.last_words()}. "
                    "Check --master and --conf"
                )
            self._launch(self.server)
        elif not self._ready and self.server.ready():
            self._ready, self._failures, self._able_at = True, 0, time.monotonic()
            self.say("spark-ready", endpoint=self.server.url, prepared="yes" if self.server.mapped() else "no")
        elif self._ready and self.server.silent():
            self._end_silent(self.server, self.server.silence)
        elif self._ready and (why := self.server.stuck()):
            self.say("spark-stuck", pid=self.server.pid, reason=why)
            self._end(self.server)
        elif not self._ready and time.monotonic() - self._launched > self.starting:
            self._launched = time.monotonic()
            self._end_silent(self.server, self.starting)
        if self._ready and self.server.pid is not None:
            self._watch_executors(self.server)

    def _watch_executors(self, server: "SparkServer") -> None:
        """Report why Spark has not been able to work for `EXECUTOR_WAIT` seconds, and when it is able again.

        After `starting` seconds Spark is restarted: after a master was lost, only a new application gets executors.
        """
        now, why = time.monotonic(), server.explain_unable()
        self._is_able = not why
        if self._is_able:
            self._able_at = now
            self._announce("")
        elif now - self._able_at > self.starting:
            self.say("spark-unable", reason=f"{why}, for {self.starting:g} s: another one starts")
            self._end(server)
        elif now - self._able_at > EXECUTOR_WAIT:
            self._announce(why)

    def _announce(self, unable: str) -> None:
        """Publish to the group why this worker can do no work, if that has changed."""
        if unable == self.live.unable:
            return
        self.live = self.live.model_copy(update={"unable": unable})
        if unable:
            self.say("spark-unable", reason=unable)
        else:
            self.say("spark-able")
        if self._agent is not None:
            self._agent.publish(unable=unable)
        self.changed.set()

    def _end_silent(self, server: "SparkServer", seconds: float) -> None:
        self.say("spark-silent", pid=server.pid, seconds=seconds)
        self._end(server)

    def _end(self, server: "SparkServer") -> None:
        server.kill()
        self.changed.set()


def _quote(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if any(c in text for c in ' ="') or not text else text
