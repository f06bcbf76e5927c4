"""Kills and pauses of real processes: agents of `rota worker`, and consuming runs beside them, at a real ZooKeeper.

Law: it lands files, sends signals and starts what it killed. What follows is the work of the group. Under `assigned` it is
the controller, too; under every other protocol it founds the group and is silent from then on. A process that ends by itself
is reported (`fell`) and started again, as Dagster launches a run and systemd an agent.

Strikes: `kill worker` (SIGKILL to the agent and its supervisor, both are started again), `crash worker` (SIGKILL to the
agent alone: its supervisor ends the session), `hang worker` (SIGSTOP to the agent, SIGCONT when its session is over), and in
the middle of a batch: `kill run`, `hang` (agent and run stop, others take over, both wake up), `zombie` (the run stops, its
agent is killed, the run wakes up when others have overtaken it). A strike of ablations alone is `early end` (the run stops,
and the supervisor ends the session of the agent, which lives). With `spark` each agent has
its own Spark, which does the work, and `kill spark` is one more strike: SIGKILL to the server alone, at any moment.
With `cluster` that Spark is an application of a standalone cluster. The strikes are `kill run` and those of `OF_CLUSTER`:
SIGKILL to the master, to a Spark worker with its executors, or to one executor, at any moment.
"""

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count as numbers
from pathlib import Path
from random import Random

import click
import psutil

from rota.catalog import load
from rota.coordination.client import connect
from rota.coordination.group_state import GroupState
from rota.coordination.store import Store
from rota.group.found import follow
from rota.group.rebalance import rebalance
from rota.local.bucket import BucketServer
from rota.local.cluster import SMALL, SparkCluster
from tests.bucket import in_bucket, on_disk
from tests.chaos.rows import Count, count, read_files
from tests.conformance.processes import Worker
from tests.dataplane.kafka.broker import Broker
from tests.waiting import LONG, wait_until

SESSION, MAX_SHUTDOWN = 2.0, 30.0
LINES = 120  # of a log that are shown where rows are missing
STRIKES = ("kill worker", "crash worker", "hang worker", "kill run", "hang", "zombie")
EARLY = "early end"
IN_A_BATCH = (*STRIKES[3:], EARLY)
OF_CLUSTER = ("kill master", "kill spark worker", "kill executor")
RUN = ("-m", "tests.chaos.serving_run")
AGENT, HASTY_AGENT = ("-m", "rota", "worker"), ("-m", "tests.chaos.hasty_worker")
PIPELINE = """
from rota import Group, Pipeline, delta, files
from rota.kafka import kafka
group = Group({group!r}, protocol={protocol!r})
pipeline = Pipeline(source={source}, table=delta({table!r}), group={group!r})
"""


@dataclass
class Stage:
    """One group. Its files land, and its table lies, in a new bucket of the server `buckets`, or in `folder`. With `broker`
    its records are in a topic instead, and `produced` has them. `struck` holds when a worker is whole again; `later` what is
    to be done then."""

    folder: Path
    hosts: str
    protocol: str
    seed: int = 1
    workers: int = 3
    keys: int = 6
    strikes: Sequence[str] = STRIKES
    fenced: bool = True
    spark: bool = False
    cluster: SparkCluster | None = None
    buckets: BucketServer | None = None
    broker: Broker | None = None
    produced: list[tuple[str, list[int]]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    agents: dict[str, Worker] = field(default_factory=dict)
    runs: dict[str, Worker] = field(default_factory=dict)
    struck: dict[str, float] = field(default_factory=dict)
    later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    armed: tuple[str, str] | None = None
    fell: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.cluster:
            self.spark, self.strikes = True, (*OF_CLUSTER, "kill run")
        elif self.spark:
            self.strikes = (*self.strikes, "kill spark")
        self.random, self.numbers, self.files = Random(self.seed), numbers(), numbers()
        self.group = f"chaos-{self.protocol}-{self.folder.name}"
        place = in_bucket(self.buckets) if self.buckets else on_disk(self.folder)
        self.landing, self.table = place / "land", place / "table"
        (self.folder / "pipelines").mkdir(parents=True)
        (self.folder / "logs").mkdir()
        source = f'files({self.landing.address!r}, format="json", schema="n int", settle=0.0)'
        if self.broker:
            self.broker.make(self.group, self.keys)
            source = f'kafka({self.broker.servers!r}, {self.group!r}, schema="n int")'
        text = PIPELINE.format(group=self.group, protocol=self.protocol, source=source, table=self.table.address)
        (self.folder / "pipelines" / "p.py").write_text(text)
        self.catalog = load(self.folder / "pipelines")
        self.next_file = self.next_strike = self.next_look = 0.0
        self.refused = 0  # writes, as they were noted

    def play(self, seconds: float, until: Callable[[], bool] = lambda: True, patience: float = LONG) -> Count:
        """So many seconds of strikes, and more `until` something is so; then none until everything that landed is in the
        table, or a row is in it twice. What there is then."""
        with connect(self.hosts, 10) as store:
            try:
                self._begin(store)
                wait_until(self._until(time.monotonic() + seconds, until, store), seconds + 2 * patience, pause=0.01)
                self._mend()
                wait_until(self._until_consumed(time.monotonic() + patience, store), 2 * patience, pause=0.5)
                if not self.count().right:
                    click.echo("\n".join(self._explain(store)))
            finally:
                for process in (*self.agents.values(), *self.runs.values()):
                    process.kill()
            self.refused = len(self.tree.refusals().ring)
        return self.count()

    def _explain(self, store: Store) -> Iterator[str]:
        """Why nothing came any more, as far as seen: what the group reports, how each process fares, and the end of its
        log, with the place where each of its threads is. They end of that."""
        yield f"strikes: {self.done}, armed: {self.armed}, fell: {self.fell}"
        tree = GroupState(store, self.group)
        yield f"live: {tree.live()}\nruns: {tree.runs()}\nparked: {tree.parked()}"
        yield f"targets: {tree.targets()[1]}\nowned: {tree.owned()}\ncheckpoints: {tree.checkpoints()}"
        for name, one in [*self.agents.items(), *self.runs.items()]:
            ended = one.process.poll() is not None
            yield f"{name} {one.process.pid} {'ended' if ended else psutil.Process(one.process.pid).status()} {one.log.name}"
            one.signal(signal.SIGABRT)
            one.signal(signal.SIGCONT)
            one.ends()
            yield from one.log.read_text().splitlines()[-LINES:]

    def count_claims(self, reason: str = "") -> int:
        """How many lines of claims the agents wrote, of this reason."""
        logs = (path.read_text() for path in (self.folder / "logs").glob("*-agent-*"))
        return sum("event=claimed" in line and reason in line for text in logs for line in text.splitlines())

    def count(self) -> Count:
        """What landed and what the table holds, now."""
        table = self.table.files / "main"
        landed = self.produced if self.broker else read_files(self.landing.files)
        return count(landed, table) if table.exists() else Count()

    # --- the group

    def _begin(self, store: Store) -> None:
        for key in range(self.keys):
            self._land(key)
        follow(store, self.catalog, self.group)
        self.tree = GroupState(store, self.group)
        for number in range(self.workers):
            self._start(f"w{number}")
            self._start_run(f"w{number}")
        wait_until(lambda: self._control(store) and self.count().commits, pause=0.5)

    def _control(self, store: Store) -> bool:
        """Does what Dagster's sensor does."""
        if self.protocol == "assigned" and follow(store, self.catalog, self.group).needed:
            rebalance(self.tree, "chaos")
        return True

    def _land(self, key: int) -> None:
        """One file of a few records, or so many records of a topic."""
        numbers = [next(self.numbers) for _ in range(self.random.randint(1, 5))]
        lines = [json.dumps({"n": n}) for n in numbers]
        if self.broker:
            self.broker.produce(self.group, key, [line.encode() for line in lines])
            self.produced += [(f"p:{key}", [n]) for n in numbers]
            return
        self.landing.put(f"{key}/{next(self.files):06}.json", "".join(f"{line}\n" for line in lines).encode())

    def _start(self, name: str) -> None:
        conf = {**SMALL, "spark.cores.max": "1"}
        words = ["--no-spark"] if not self.spark else []
        if self.cluster:
            words = ["--master", self.cluster.url, *(w for k, v in conf.items() for w in ("--conf", f"{k}={v}"))]
        program = HASTY_AGENT if EARLY in self.strikes else AGENT
        self.agents[name] = self._spawn(f"{name}-agent", "--id", name, *words, program=program)

    def _start_run(self, name: str) -> None:
        words = ["--id", name, "--folder", str(self.folder), *(["--spark"] if self.spark else [])]
        words += [] if self.fenced else ["--unfenced"]
        self.runs[name] = self._spawn(f"{name}-run", *words, program=RUN)

    def _spawn(self, name: str, *words: str, program: Sequence[str]) -> Worker:
        log = self.folder / "logs" / f"{name}-{next(self.files)}.log"
        return Worker(log, self.hosts, self.group, *words, max_shutdown=MAX_SHUTDOWN, session=SESSION, program=program)

    # --- what happens

    def _until(self, end: float, enough: Callable[[], bool], store: Store) -> Callable[[], bool]:
        def step() -> bool:
            now = time.monotonic()
            if now >= self.next_file:
                self._land(self.random.randrange(self.keys))
                self.next_file = now + 0.5
            self._do_what_is_due(now)
            self._strike(now)
            if now >= self.next_look:
                self._start_fallen()
                self._control(store)
                self.next_look = now + 1.0
                return now > end and enough()
            return False

        return step

    def _do_what_is_due(self, now: float) -> None:
        due = [act for at, act in self.later if at <= now]
        self.later = [(at, act) for at, act in self.later if at > now]
        for act in due:
            act()
        self.struck = {name: until for name, until in self.struck.items() if until > now}

    def _strike(self, now: float) -> None:
        """Arms the next strike, and strikes as soon as its moment is there. One worker at least is always whole."""
        whole = [name for name in self.agents if name not in self.struck]
        if self.armed is None and now >= self.next_strike and len(whole) > 1:
            self.armed = kind, name = self.random.choice(self.strikes), self.random.choice(whole)
            if kind in IN_A_BATCH:
                moment = "" if self.spark or self.random.random() < 0.5 else f"{self.random.uniform(0.001, 0.5):.3f}"
                self._mark(name).write_text(moment)
        if self.armed is None or (self.armed[0] in IN_A_BATCH and self._mark(self.armed[1]).exists()):
            return  # its run is not in the middle of a batch yet
        kind, name = self.armed
        self.armed, self.next_strike = None, now + self.random.uniform(0.5, 10 if self.cluster else 2)
        if self.cluster and kind in OF_CLUSTER:
            self.done[kind] += self._strike_cluster(self.cluster, kind, now + self.random.uniform(1, 8))
            return
        self.done[kind] += 1
        agent, run = self.agents[name], self.runs[name]
        again = now + SESSION * (
            self.random.uniform(2.5, 4) if kind in ("hang", "zombie", EARLY) else self.random.uniform(1, 2)
        )
        self.struck[name] = again + 2 * SESSION
        if kind == "kill spark":
            for one in psutil.Process(agent.find_pid()).children(recursive=True):
                one.kill()
        if kind in ("hang", "zombie", EARLY):
            self.later.append((again, partial(run.signal, signal.SIGCONT)))
        if kind == EARLY:
            agent.process.send_signal(signal.SIGUSR1)
        if kind in ("hang", "hang worker"):
            agent.signal(signal.SIGSTOP)
            self.later.append((again, partial(agent.signal, signal.SIGCONT)))
        if kind == "crash worker":
            agent.crash()
        if kind in ("kill worker", "zombie"):
            agent.kill()
        if kind in ("kill worker", "crash worker", "zombie"):
            self.later.append((again, partial(self._start, name)))
        if kind == "kill run":
            run.kill()
            self.later.append((again, partial(self._start_run, name)))

    def _strike_cluster(self, cluster: SparkCluster, kind: str, again: float) -> int:
        """Kills a part of the cluster that lives, and starts it again later. An executor is started by its Spark worker.

        Returns:
            How many were killed: 0 or 1.
        """
        if kind == "kill executor":
            living = cluster.find_executors()
            for one in self.random.sample(living, min(1, len(living))):
                one.kill()
            return bool(living)
        names = [n for n in cluster.children if (n == "master") == (kind == "kill master")]
        for name in self.random.sample(names, min(1, len(names))):
            cluster.kill(name)
            start = cluster.start_master if name == "master" else partial(cluster.start_worker, name)
            self.later.append((again, start))
        return bool(names)

    def _start_fallen(self) -> None:
        """Starts what ended without a strike."""
        for kind, processes, start in (("agent", self.agents, self._start), ("run", self.runs, self._start_run)):
            for name, one in processes.items():
                if name not in self.struck and (code := one.process.poll()) is not None:
                    self.fell.append(f"{name}-{kind}, exit code {code}, {one.log}")
                    start(name)

    def _mark(self, name: str) -> Path:
        """The file by which the run of this worker is asked to stop in the middle of its next batch; it removes it then."""
        return self.folder / f"stop-{name}"

    def _mend(self) -> None:
        """Everything that was to be done later is done now, and no run stops itself any more."""
        self._do_what_is_due(float("inf"))
        for name in self.runs:
            self._mark(name).unlink(missing_ok=True)

    def _until_consumed(self, end: float, store: Store) -> Callable[[], bool]:
        def consumed() -> bool:
            for run in self.runs.values():  # it may have been about to stop when it was mended
                run.signal(signal.SIGCONT)
            self._start_fallen()
            found = self.count()
            return self._control(store) and (not found.lost or found.doubled > 0 or time.monotonic() > end)

        return consumed
