"""The hand-over in virtual time: agents and runs as separate actors, a controller, a launcher, and faults between steps.

One seed, one history. `World(seed, faults=True).play()` returns the world with its checker; `damage` must be empty.
`python -m tests.sim.handover.world SEED [--no-faults]` plays one again and prints what happened; with FIRST LAST many.
"""

import contextlib
import heapq
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from random import Random

from rota.agent import Agent
from rota.coordination import checkpoint as checkpoints
from rota.coordination import ownership
from rota.coordination.membership import join
from rota.coordination.memory import MemoryServer, MemoryStore
from rota.coordination.ownership import claim
from rota.coordination.parking import waiting
from rota.coordination.records import Checkpoint, Head, Live, Own, Parked, Slot, Slots, decode, encode
from rota.coordination.store import Create, Set
from rota.coordination.tree import Tree
from rota.core.reconcile import Guards
from rota.errors import Conflict
from rota.ids import worker_of
from tests.sim.handover.checker import Checker
from tests.sim.handover.run import Config, RunGuards, consume, replay
from tests.sim.handover.table import Table

SESSION = 4.0
MAX_SHUTDOWN = 12.0
KINDS = (
    *("kill", "kill", "pause", "pause", "long pause", "long pause", "hang", "expire", "lose", "disconnect", "table"),
    *("twin", "unlive", "hurry"),  # of agents only
)
RUDE = ("fenced", "claimed-forced", "run-broken", "outrun", "refused")  # what never happens without a fault
Steps = Generator[float, None, None]


@dataclass(slots=True)
class Actor:
    """Something that takes steps; it can be killed or paused between any two of them."""

    name: str
    kind: str  # agent, run, replay, world
    steps: Steps
    store: MemoryStore | None = None
    agent: Agent | None = None
    config: Config | None = None
    until: float = 0.0  # paused until then
    alive: bool = True


@dataclass(frozen=True, slots=True)
class Ablation:
    """The guards that stand; each default is the real thing."""

    agent: Guards = field(default_factory=Guards)
    run: RunGuards = field(default_factory=RunGuards)
    checkpoint: checkpoints.Guards = checkpoints.GUARDED
    writes: ownership.Guards = ownership.GUARDED
    make_agent: Callable[..., Agent] = Agent
    restless: float = 0.02  # how often the controller moves a partition for no reason
    poison: float = 0.1  # how many runs have a partition that fails on its data
    longest_batch: float = 3.0


class World:
    """Three workers and six partitions; `churn` seconds of joins, leaves and reshuffles (with or without faults), then
    everything heals, and within `patience` seconds it must come to rest."""

    workers = ("w1", "w2", "w3")
    partitions = tuple(f"s:{n}" for n in range(5))
    cap = 3  # any two of the workers can hold everything
    max_batch = 7

    def __init__(
        self,
        seed: int,
        *,
        faults: bool = True,
        ablation: Ablation | None = None,
        churn: float = 30.0,
        patience: float = 60.0,
    ) -> None:
        self.seed, self.random, self.churn, self.patience = seed, Random(seed), churn, patience
        self.rate = 0.03 if faults else 0.0  # of a fault, at each step of an agent or a run
        ablation = ablation or Ablation()
        self.agent_guards, self.run_guards = ablation.agent, ablation.run
        self.checkpoint_guards, self.make_agent = ablation.checkpoint, ablation.make_agent
        self.write_guards = ablation.writes
        self.restless, self.poisoned, self.longest_batch = ablation.restless, ablation.poison, ablation.longest_batch
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        self.story: list[str] = []
        self.server = MemoryServer(lambda: self.now, SESSION)
        self.table = Table()
        self.table.fault = self._table_fault
        self.checker = Checker(self.table, self.partitions, self.cap)
        self.actors: list[Actor] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = self._ids = 0
        self._zxid = -1
        self._table_broken: str | None = None
        self.god = Tree(self.server.connect(), "g")
        self.god.found()
        self.god.store.multi([Create(self.god.paths.own(p), encode(Own())) for p in self.partitions])
        self.rates = {p: self.random.uniform(0.3, 2.0) for p in self.partitions}
        self.max_run = self.random.choice((2, 5))

    def owner(self, count: int) -> Config:
        """What a run is told of a worker that owns the first partitions, without its agent: for a test of one run."""
        tree, named = Tree(self.server.connect(), "g"), self.partitions[:count]
        incarnation = join(tree, "w1", Live())
        slots = Slots(slots=(Slot(epoch=1, partitions=frozenset(named)),))
        tree.store.multi(
            [Create(tree.paths.assign("w1"), encode(slots)), Set(tree.paths.head, encode(Head(epoch=1)), -1)]
        )
        for partition in named:
            claim(tree, incarnation, partition, 0)
            self.observe()
        return Config("run", incarnation, named)

    # --- what actors use

    def step(self) -> float:
        """How long one call to ZooKeeper or to the table's log takes; now and then something is in its way."""
        return self.random.uniform(0.001, 0.02) if self.random.random() < 0.9 else self.random.uniform(0.02, 1.0)

    def latest(self, partition: str) -> int:
        """The end of a partition's source now."""
        return int(min(self.now, self.churn) * self.rates[partition])

    def poison(self, partitions: tuple[str, ...]) -> str | None:
        """The partition of a batch that fails on its data or transform, if one does."""
        bad = self.now < self.churn and self.random.random() < self.poisoned
        return self.random.choice(partitions) if bad else None

    def commit_id(self) -> int:
        """An id never given before."""
        self._ids += 1
        return self._ids

    def count(self, what: str, times: int = 1) -> None:
        """Count something that is no damage by itself, but for what never happens without a fault."""
        self.counts[what] += times
        if not self.rate and times and what in RUDE:
            self.checker.blame("rude", f"{what} at {self.now:.3f}")

    def fence(self, partition: str, incarnation: str) -> None:
        """A run found a newer token and wrote nothing."""
        self.count("fenced")
        self.tell(f"fenced {incarnation} on {partition}")

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.now:8.3f} {line}")

    # --- playing

    def play(self) -> "World":
        """From the first join to rest, or to the end of patience."""
        for worker in self.workers:
            self.at(self.random.uniform(0, 2), lambda w=worker: self.start_agent(w))  # type: ignore[misc]
        self.spawn(Actor("controller", "world", self._controller()))
        self.spawn(Actor("launcher", "world", self._launcher()))
        self.spawn(Actor("fate", "world", self._fate()))
        self.at(self.churn, self._heal)
        while self._queue:
            self.now, _, do = heapq.heappop(self._queue)
            if self.now > self.churn + self.patience:
                self.checker.blame("stuck", "; ".join(self.unsettled()))
                break
            do()
            self.observe()
            if self.now > self.churn + 1 and self._rested():
                break
        return self

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Do it at a moment of virtual time."""
        self._order += 1
        heapq.heappush(self._queue, (when, self._order, do))

    def spawn(self, actor: Actor, delay: float = 0.0) -> None:
        """Let an actor take its first step."""
        self.actors.append(actor)
        self.at(self.now + delay, lambda: self._advance(actor))

    def _advance(self, actor: Actor) -> None:
        if not actor.alive:
            return
        if actor.until > self.now:
            self.at(actor.until, lambda: self._advance(actor))
            return
        if actor.kind in ("agent", "run", "replay") and self.now < self.churn and self.random.random() < self.rate:
            self._strike(actor)
            if not actor.alive or actor.until > self.now:
                self.at(max(actor.until, self.now), lambda: self._advance(actor))
                return
        try:
            delay = next(actor.steps)
        except StopIteration:
            self._ended(actor)
            return
        self.at(self.now + delay, lambda: self._advance(actor))

    def _ended(self, actor: Actor) -> None:
        actor.alive = False
        if actor.store is not None:
            actor.store.close()
        self.actors.remove(actor)

    # --- faults

    def _strike(self, actor: Actor) -> None:
        """One fault, of a kind that suits the actor."""
        kind = self.random.choice(KINDS)
        if kind in ("twin", "unlive", "hurry") and actor.kind != "agent":
            kind = "pause"
        if actor.store is None and kind in ("expire", "lose", "disconnect"):
            kind = "pause"
        self.count("faults")
        self.tell(f"{kind} {actor.name}")
        if kind == "kill":
            self.kill(actor)
        elif kind in ("pause", "long pause"):
            self.pause(
                actor, self.random.uniform(0.1, 2.0) if kind == "pause" else self.random.uniform(0.7, 4) * SESSION
            )
        elif kind == "hang":  # it does nothing, but something keeps its session
            actor.until = self.now + self.random.uniform(0.5, 2) * MAX_SHUTDOWN
        elif kind == "table":
            self._table_broken = self.random.choice(("before", "after"))
        elif kind == "twin":
            self.start_agent(worker_of(actor.name))
        elif kind in ("unlive", "hurry") and actor.agent is not None:
            self._harass(actor.agent, kind)
        elif actor.store is not None:
            self._hurt(actor.store, kind)

    def _harass(self, agent: Agent, kind: str) -> None:
        """Somebody removes its live node, or tells it twice to leave."""
        if kind == "hurry":
            agent.leave(hurry=True)
            self.at(self.now + self.random.uniform(2, 8), lambda: self.start_agent(agent.worker, only=True))
        elif agent.state.incarnation is not None:
            with contextlib.suppress(Conflict):
                self.god.store.delete(self.god.paths.live(agent.state.incarnation))

    def _hurt(self, store: MemoryStore, kind: str) -> None:
        if kind == "expire":
            self.server.expire(store.session)
        elif kind == "lose":
            self.random.choice((store.lose_reply, store.lose_request))()
        else:
            seconds = self.random.uniform(0.1, 1.5) * SESSION
            self.random.choice((store.disconnect, store.cut))()
            self.at(self.now + seconds, store.reconnect)
            if seconds > 0.8 * SESSION:
                self._expire_later(store)

    def kill(self, actor: Actor) -> None:
        """kill -9: no further step; the session ends when the server notices; somebody starts it again, or not."""
        actor.alive = False
        actor.steps.close()
        self.actors.remove(actor)
        if actor.store is not None:
            self._expire_later(actor.store)
        if actor.agent is not None:
            worker = actor.agent.worker
            self.at(self.now + self.random.uniform(0.2, 3 * SESSION), lambda: self.start_agent(worker, only=True))
        if actor.config is not None and self.random.random() < 0.5:
            config = actor.config
            self.at(self.now + self.random.uniform(0.5, 2 * SESSION), lambda: self.start_run(config))

    def pause(self, actor: Actor, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later; past the session time-out the session is gone by then."""
        actor.until = self.now + seconds
        if seconds > 0.7 * SESSION and actor.store is not None:
            self._expire_later(actor.store)

    def _expire_later(self, store: MemoryStore) -> None:
        session = store.session
        self.at(self.now + self.random.uniform(0.7, 1.0) * SESSION, lambda: self.server.expire(session))

    def _table_fault(self) -> str | None:
        fault, self._table_broken = self._table_broken, None
        return fault

    def _heal(self) -> None:
        """No more faults: everybody wakes, and each worker has an agent."""
        self.tell("heal")
        self._table_broken = None
        for actor in self.actors:
            actor.until = min(actor.until, self.now)
            if actor.store is not None:
                actor.store.reconnect()
        self.spawn(Actor("supervisor", "world", self._supervisor()), 2 * SESSION)

    # --- actors

    def _supervisor(self) -> Steps:
        """Whoever ended is started again."""
        while True:
            for worker in self.workers:
                self.start_agent(worker, only=True)
            yield SESSION

    def start_agent(self, worker: str, only: bool = False) -> None:
        """An agent process; with `only`, unless one of that id is there."""
        if only and any(a.agent is not None and a.agent.worker == worker for a in self.actors):
            return
        store = self.server.connect()
        agent = self.make_agent(
            Tree(store, "g"),
            worker,
            Live(max_partitions=self.cap),
            lambda word, /, **facts: self._said(worker, word, facts),
            max_shutdown=MAX_SHUTDOWN,
            session_timeout=SESSION,
            clock=lambda: self.now,
            guards=self.agent_guards,
            writes=self.write_guards,
        )
        self._ids += 1
        self.spawn(Actor(f"{worker}@{self._ids}", "agent", self._agent(agent), store, agent))

    def _said(self, worker: str, word: str, facts: Mapping[str, object]) -> None:
        giver = facts.get("giver")
        if facts.get("reason") == "gone" and giver in self.server.children(self.god.paths.lives):
            self.checker.blame("robbed", f"{facts['partition']} was taken from {giver} as if it were gone")
        self.count(word if word != "claimed" else f"claimed-{facts['reason']}")
        self.tell(f"{worker} {word} {' '.join(f'{k}={v}' for k, v in facts.items())}")

    def _agent(self, agent: Agent) -> Steps:
        while agent.done is None:
            for _ in agent.cycle():
                yield self.step()
            yield 0.3 if agent.unsettled else 0.8
        self.tell(f"{agent.worker} ended: {agent.done.reason}")

    def start_run(self, config: Config) -> None:
        """A run process with this config, whoever else has it."""
        store = self.server.connect()
        steps = consume(self, config, Tree(store, "g"), self.random)
        self.spawn(Actor(config.run_id, "run", steps, store, config=config))

    def _launcher(self) -> Steps:
        """The backlog: one run for each live incarnation with lag and without an unfinished run."""
        while True:
            yield 0.5
            live, targets = self.god.newest(self.god.live()), self.god.targets()[1]
            owners = {p: s.owner for p, s in self.checker.seen.items()}
            parked = {p for p, one in self.god.parked().items() if waiting(one.record, self.now)}
            for worker, view in live.items():
                named = targets[worker].partitions if worker in targets else frozenset()
                mine = (p for p in sorted(named - parked) if owners[p] == view.incarnation)
                wanted = tuple(p for p in mine if self._lag(p))
                if wanted and not any(
                    a.config is not None and a.config.incarnation == view.incarnation for a in self.actors
                ):
                    self._launch(Config(f"r{self.commit_id()}", view.incarnation, wanted))

    def _lag(self, partition: str) -> bool:
        seen = self.checker.seen[partition]
        return self.latest(partition) > seen.offset or seen.checkpoint < seen.offset

    def _launch(self, config: Config) -> None:
        delay = self.random.uniform(0, 1.5)
        if self.now < self.churn:
            if self.rate and self.random.random() < 0.1:
                delay = self.random.uniform(1, 2 * SESSION)  # a stale config
            if self.random.random() < 0.1:
                again = config  # the same run resumed while its process is still there; without faults a click
                if not self.rate or self.random.random() < 0.5:
                    again = Config(f"r{self.commit_id()}", config.incarnation, config.partitions)
                self.at(self.now + self.random.uniform(0, SESSION), lambda: self.start_run(again))
        self.at(self.now + delay, lambda: self.start_run(config))

    def _fate(self) -> Steps:
        """Leaves, returns and replays."""
        while self.now < self.churn:
            yield self.random.uniform(0.5, 4)
            agents = [a for a in self.actors if a.agent is not None and a.until <= self.now]
            choice = self.random.random()
            if choice < 0.4 and len(agents) > 1:
                leaver = self.random.choice(agents).agent
                if leaver is not None:
                    leaver.leave()
                    self.at(
                        self.now + self.random.uniform(2, 8), lambda w=leaver.worker: self.start_agent(w, only=True)
                    )
            elif choice < 0.7:
                partition = self.random.choice(self.partitions)
                self.spawn(Actor(f"replay {partition}", "replay", replay(self, partition, self.random)))

    def _controller(self) -> Steps:
        """Places every partition on a live worker that stays; now and then it changes its mind."""
        tree = Tree(self.server.connect(), "g")
        placed: dict[str, str] = {}
        while True:
            yield 0.4
            there = [w for w, v in tree.newest(tree.live()).items() if v.record is not None and not v.record.leaving]
            wanted = {p: w for p, w in placed.items() if w in there}
            for p in self.partitions:
                restless = self.now < self.churn and self.random.random() < self.restless
                counts = Counter(w for other, w in wanted.items() if other != p)
                room = [w for w in there if counts[w] < self.cap]
                if room and restless:
                    wanted[p] = self.random.choice(room)
                elif room and p not in wanted:
                    wanted[p] = min(room, key=lambda w: (counts[w], self.random.random()))
            if wanted != placed:
                dies = self.now < self.churn and self.random.random() < 5 * self.rate  # between two of its writes
                for pause in self._publish(tree, wanted):
                    if dies and self.random.random() < 0.5:
                        self.tell("the controller dies in the middle")
                        placed = {}
                        break
                    yield pause
                else:
                    placed = wanted

    def _publish(self, tree: Tree, wanted: Mapping[str, str]) -> Steps:
        head, slots = tree.head(), tree.assigns()
        epoch = 1 + max([head.record.epoch, *(r.record.newest for r in slots.values())])
        for worker in sorted({*slots, *wanted.values()}):
            names = frozenset(p for p, w in wanted.items() if w == worker)
            there, path = slots.get(worker), tree.paths.assign(worker)
            old = there.record.effective(head.record.epoch) if there else None
            pending = there is not None and there.record.newest > head.record.epoch  # by a controller that died
            if old is not None and old.partitions == names and not pending:
                continue
            record = encode(Slots(slots=(*([old] if old else []), Slot(epoch=epoch, partitions=names))))
            tree.store.multi([Set(path, record, there.version) if there else Create(path, record)])
            yield self.step()
        tree.store.multi([Set(tree.paths.head, encode(Head(epoch=epoch)), head.version)])
        self.tell(f"epoch {epoch}: {' '.join(f'{p}:{w}' for p, w in sorted(wanted.items()))}")

    # --- judging

    def repro(self) -> str:
        """What went wrong, and the one line that plays it again."""
        how = "" if self.rate else " --no-faults"
        said = "; ".join(self.checker.said[:3])
        return f"seed {self.seed}: {said}. Again: PYTHONPATH=. python -m tests.sim.handover.world {self.seed}{how}"

    def observe(self) -> None:
        """Show the judge what is new."""
        self.checker.commits()
        if self.server.zxid == self._zxid:
            return
        self._zxid = self.server.zxid
        names = self.server.children(self.god.paths.lives)
        nodes = {n: self.server.node(self.god.paths.live(n)) for n in names}
        live = {n: node.czxid for n, node in nodes.items() if node is not None}
        for p, seen in self.checker.seen.items():
            node = self.server.node(self.god.paths.own(p))
            if node is not None and node.mzxid != seen.own_mzxid:
                owner = decode("own", Own, node.data).owner
                invited = frozenset(
                    w for w, r in self.god.assigns().items() if any(p in slot.partitions for slot in r.record.slots)
                )
                self.checker.own(p, owner, node.version, node.mzxid, live, invited)
            node = self.server.node(self.god.paths.checkpoint(p))
            if node is not None and node.mzxid != seen.checkpoint_mzxid:
                seen.checkpoint_mzxid = node.mzxid
                record = decode("checkpoint", Checkpoint, node.data)
                self.checker.checkpoint(p, record.offset, record.token)
            node = self.server.node(self.god.paths.parking(p))
            if (node.mzxid if node is not None else -1) != seen.park_mzxid:
                seen.park_mzxid = node.mzxid if node is not None else -1
                if node is None:
                    self.checker.parked(p, None)
                else:
                    park = decode("parked", Parked, node.data)
                    # A run of the same owner whose session ended may have consumed it meanwhile: never without a fault.
                    self.checker.parked(p, park.offset, int(park.reason) if self.rate else -1)

    def unsettled(self) -> list[str]:
        """What keeps the world from rest."""
        targets = {p: w for w, t in self.god.targets()[1].items() for p in t.partitions}
        newest = {w: v.incarnation for w, v in self.god.newest(self.god.live()).items()}
        latest = {p: self.latest(p) for p in self.partitions}
        return self.checker.unsettled(latest, targets, newest)

    def _rested(self) -> bool:
        runs = any(a.kind in ("run", "replay") for a in self.actors)
        agents = {a.agent.worker for a in self.actors if a.agent is not None}
        return not runs and len(agents) == len(self.workers) and not self.unsettled()


def main(words: list[str]) -> None:
    """`SEED` plays one seed and tells its story; `FIRST LAST` plays many and tells which did damage."""
    faults = "--no-faults" not in words
    seeds = [int(word) for word in words if word.isdigit()]
    if len(seeds) == 1:
        world = World(seeds[0], faults=faults).play()
        print("\n".join(world.story))  # noqa: T201
        print(dict(world.counts), dict(world.checker.damage), *world.checker.said, sep="\n")  # noqa: T201
        return
    counts: Counter[str] = Counter()
    for seed in range(*seeds):
        world = World(seed, faults=faults).play()
        counts += world.counts + world.checker.damage
        if world.checker.damage:
            print(world.repro())  # noqa: T201
    print(dict(counts))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
