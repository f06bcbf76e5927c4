"""The agent represents one worker in a group: it joins, observes, decides by the reconcile machine, acts and drains.

Laws:
1. Every write is a compare-and-set on the version that was read.
2. An observation that took longer than `SURELY_ALIVE` of the session timeout is discarded.
3. After a suspension every record is read again before any write.
4. When the session ends, the worker gives up everything. It joins again as another incarnation once the group exists and
   no other live process has its id.
5. Each decision, and each reason why the agent does not act, is logged in one line.

`cycle` yields between any two calls to ZooKeeper. The simulation lets other events happen at these points.
"""

import random
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Protocol

from rota.coordination import membership, overrides, ownership
from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.coordination.views import Target
from rota.core.reconcile import (
    Announce,
    Batch,
    Claim,
    Event,
    Exit,
    Instruction,
    Join,
    Joined,
    LeaveRequested,
    Lost,
    Machine,
    Note,
    Observed,
    Owner,
    Release,
    State,
    Suspended,
    Ticked,
    assigned,
    batches,
)
from rota.errors import Conflict, NoGroup, OwnershipError, Unavailable, Undecodable, Unknown
from rota.group.chooser import REREAD_AFTER, Chooser
from rota.group.first_run import FirstRun
from rota.ids import is_incarnation, worker_of

SURELY_ALIVE = 0.6  # fraction of the session timeout after which an observation is too old to act upon
LINES = 100  # partitions that are logged one by one; if there are more, lines count them
MAX_RECORDS_OBSERVED = (
    5_000  # the most own records that one observation reads; with more, it would be too old to act upon
)
SHORTEST = 0.02  # seconds between two rounds
PUBLISHING = 1.0  # seconds in which a publication that began is expected to end
BRIEF = 0.05  # seconds between two rounds meanwhile

Facts = dict[str, object]


class Say(Protocol):
    """Logs one decision: a word and its facts."""

    def __call__(self, word: str, /, **facts: object) -> None: ...


class Agent:
    """One worker in one group over one store. `done` is set once the agent has ended. Not thread-safe."""

    def __init__(
        self,
        tree: GroupState,
        worker: str,
        live: Live,
        say: Say,
        *,
        max_shutdown: float,
        session_timeout: float,
        clock: Callable[[], float] = time.monotonic,
        machine: Machine = assigned,
        draw: Callable[[], float] = random.random,
        ordinal: int | None = None,
        replicas: int | None = None,
    ) -> None:
        self.tree, self.store, self.paths = tree, tree.store, tree.paths
        self.worker, self.live, self.say, self.clock = worker, live, say, clock
        self.wants_run = live.awaits_run  # whether each join waits for the first run, if there is reason to
        self.patience = SURELY_ALIVE * session_timeout
        self.state = State(worker, max_shutdown)
        self.done: Exit | None = None
        self._machine = machine
        self._first_run = FirstRun(tree, clock)
        self.chooser = Chooser(tree, worker, say, clock, draw, ordinal=ordinal, replicas=replicas)
        self._session = 0
        self._assign_version: int | None = None  # of the target last read; a claim checks this version
        self._pending_since: float | None = None  # since when a slot has an epoch that the head has not reached
        self._read: dict[str, float] = {}  # own record -> when it was last read
        self._settled: set[str] = set()  # own records that matched the target when last read
        self._unread: frozenset[str] = frozenset()  # records that did not fit into the last observation
        self._unreadable: frozenset[str] = frozenset()
        self._there: frozenset[str] = frozenset()  # the live names in the last observation
        self._missed = False  # whether the last cycle ended with a worker that came or went after its target was chosen
        self._silent = False  # whether the loss of ZooKeeper was logged, and its return not yet
        self._idle = ""  # why the agent does not work, as last logged
        self._waiting: frozenset[str] = frozenset()  # processes that wait until this one ends, as last logged

    # --- what the process calls

    def cycle(self) -> Generator[None, None, None]:
        """Run one round: read a fresh observation and execute the machine's instructions.

        If ZooKeeper is unavailable or a record of the group cannot be read, the agent raises nothing. It writes nothing
        until ZooKeeper answers, or until the record is repaired.
        """
        self._missed = False
        try:
            if self.state.incarnation is not None and self.store.session != self._session:
                yield from self._feed(Lost(self.store.lost_why))
            elif not self.store.active():
                why = f" ({trouble})" if (trouble := self.store.trouble) else ""
                self._suspended(
                    f"no answer from ZooKeeper, or this process was stopped{why}: nothing is written until it answers"
                )
                yield from self._still()
            elif self.state.incarnation is None and self.done is None:
                yield from self._join()
            elif self.done is None:
                yield from self._round()
        except (Unavailable, Unknown) as error:
            self._suspended(str(error))
            yield from self._still()
        except NoGroup as error:
            self._idles("no-group", {"reason": f"it waits until the group is founded: {error}"})
            yield from self._still()
        except Undecodable:
            self._report()  # the agent does not act upon what cannot be read
            yield from self._still()

    def leave(self, *, hurry: bool = False) -> None:
        """Ask the agent to leave: it claims nothing more, releases what the target drops, and ends when it holds nothing.

        With `hurry` it releases everything at once, even if a run consumes it. The next owner's claim fences that run.
        """
        if self.state.leaving is None or hurry:
            self.say("leaving", held=len(self.state.held), hurry=hurry or None)
        for _ in self._feed(LeaveRequested(self.clock(), hurry)):
            pass

    def publish(self, **changes: object) -> bool:
        """Rewrite the live record with the changes. Return whether ZooKeeper stored it."""
        self.live = self.live.model_copy(update=changes)
        if self.state.incarnation is None or not self.store.active() or self.store.session != self._session:
            return False
        try:
            membership.announce(self.tree, self.state.incarnation, self.live)
        except (Conflict, Unavailable, Unknown):
            return False
        return True

    @property
    def unsettled(self) -> bool:
        """Whether a change is in progress, so that the next observation should come soon."""
        state = self.state
        eager = self._pending_since is not None or self.chooser.eager
        moves = bool(state.waiting or state.draining or self._unread)
        return moves or state.leaving is not None or eager or self.live.awaits_run

    def find_pause(self, soon: float, later: float) -> float:
        """Return the seconds to wait until the next round."""
        pause = soon if self.unsettled or self.state.incarnation is None else later
        if self._pending_since is not None and self.clock() - self._pending_since < PUBLISHING:
            pause = BRIEF  # the controller is about to move the head
        if self._missed:
            pause = SHORTEST
        due = self.chooser.due
        return pause if due is None else max(SHORTEST, min(pause, due - self.clock()))

    # --- the round

    def _still(self) -> Generator[None, None, None]:
        """Pass time without an observation: nothing is written until every record is read again."""
        yield from self._feed(Suspended(self.clock()))
        yield from self._feed(Ticked(self.clock()))

    def _join(self) -> Generator[None, None, None]:
        if self.store.session == self._session:
            self.store.renew()  # an incarnation that ended never lives again
        session = self.store.session
        if (other := membership.rival(self.tree, self.worker, self.live)) is not None:
            return self._waits(other)
        if why := self.chooser.join(meta := self.tree.meta()):
            self._idles("refused", {"reason": why}, about=meta.protocol)
            return
        awaits = self.wants_run and meta.protocol == "assigned" and self._first_run.begin()
        self.live = self.live.model_copy(update={"protocol": meta.protocol, "awaits_run": awaits})
        incarnation = membership.join(self.tree, self.worker, self.live)
        self._silent, self._idle = False, ""
        self._session, self._read, self._settled = session, {}, set()
        self.say("joined", incarnation=incarnation)
        self._there = frozenset()
        yield from self._feed(Joined(incarnation))

    def _waits(self, other: str) -> None:
        """Log that another process has this id, and wait: two processes that take over from each other would never stop."""
        seen = self.tree.read_many([self.paths.live(other)], Live).get(self.paths.live(other))
        facts = {"host": seen.record.host, "pid": seen.record.pid} if seen is not None else {}
        why = (
            "a process of this id, elsewhere, has a session: this one joins when that ends. Give each worker its own id"
        )
        if self._idles("taken", {"incarnation": other, **facts, "reason": why}):
            membership.wait_beside(self.tree, self.worker, self.live)

    def _idles(self, word: str, facts: Mapping[str, object], about: str = "") -> bool:
        """Log why the agent does not work, once for the same `about`, or else the same `facts`. Return whether it logged."""
        if (idle := f"{word} {about or facts}") == self._idle:
            return False
        self._idle = idle
        self.say(word, **facts)
        return True

    def _suspended(self, why: str) -> None:
        if not self._silent:
            self.say("suspended", reason=why)
        self._silent = True

    def _round(self) -> Generator[None, None, None]:
        if self.live.awaits_run and (why := (yield from self._first_run.explain_end(self._incarnation))):
            if not self.publish(awaits_run=False):
                self.live = self.live.model_copy(update={"awaits_run": True})  # the next round publishes it
            else:
                self.say("able", reason=why)
        yield from self.chooser.choose(self.state, self._there, frozenset(self._settled))
        seen = yield from self.observe()
        if self.store.session != self._session:
            yield from self._feed(Lost(self.store.lost_why))
        elif (took := self.clock() - seen.began) > self.patience:
            self._suspended(
                f"an observation took {took:.1f} s, longer than the session is surely alive: nothing is written"
            )
            yield from self._feed(Suspended(self.clock()))
        else:
            if self._silent:
                self.say("resumed")
            self._silent, self._idle = False, ""
            yield from self._feed(seen)
            self._missed = self.chooser.has_missed(self._there)

    def observe(self) -> Generator[None, None, Observed]:
        """Return one observation, read in the order of the machine's laws: target, own records, live nodes, runs."""
        began = self.clock()
        cap = overrides.cap(self.tree, self.worker, self.live.max_partitions) if self.live.has_room else 0
        seen = self._target()
        target = seen.partitions if seen is not None else None
        epoch, previous = (seen.epoch, seen.previous) if seen is not None else (None, None)
        if seen is not None and self.chooser.protocol != "assigned":  # the versions of its own target
            epoch, previous = seen.version, seen.version - 1
        yield
        owners = self._own(target)
        yield
        there = self.store.children(self.paths.lives)
        names = self._there = frozenset(n for n in there if is_incarnation(n))
        self._hear(there)
        yield
        newest = self._newest(names)
        mine = self.tree.runs({self._incarnation}) if self.state.let_go(target, owners) else ()
        busy = frozenset(p for run in mine for p in run.partitions)
        self._report()
        now = self.clock()
        return Observed(began, now, epoch, previous, target, owners, names, newest, busy, cap, self._unread)

    def _target(self) -> Target | None:
        """Return this worker's target; None if there is none or it cannot be read now."""
        try:
            target = self.tree.target(self.worker)
        except Undecodable:
            return None  # `tree.unreadable` has it, and `_report` logs it
        self._assign_version = target.version if target is not None else None
        pending = target is not None and target.previous is not None and target.previous > target.epoch
        since = self.clock() if self._pending_since is None else self._pending_since
        self._pending_since = since if pending else None
        return target

    def _own(self, target: frozenset[str] | None) -> dict[str, Owner]:
        """Return the own records of partitions in the target or held: at most `MAX_RECORDS_OBSERVED`, the least recently
        read first.

        Settled records are read again only every `REREAD_AFTER` seconds.
        """
        now, wanted = self.clock(), self.state.interest(target)
        if self.state.suspended is not None:
            self._read, self._settled = {}, set()
        settled = self._settled & (target or frozenset()) if self.state.leaving is None else frozenset()
        read, torn = self._read, self.tree.unreadable
        due = [p for p in wanted if p not in settled or now - read[p] >= REREAD_AFTER]
        due.sort(key=lambda p: (read.get(p, float("-inf")), p))
        ask, later = due[:MAX_RECORDS_OBSERVED], due[MAX_RECORDS_OBSERVED:]
        self._unread = frozenset(p for p in later if p not in settled and not (torn and self.paths.own(p) in torn))
        views = self.tree.owned(ask) if ask else {}
        self._read = {p: at for p, at in read.items() if p in wanted} | dict.fromkeys(ask, now)
        mine = {p for p, view in views.items() if view.incarnation == self.state.incarnation}
        self._settled = (self._settled.difference(ask) | mine) & wanted
        return {p: Owner(view.incarnation, view.version) for p, view in views.items()}

    def _newest(self, live: frozenset[str]) -> str | None:
        """Return the live incarnation of this worker that joined last."""
        mine = sorted(n for n in live if worker_of(n) == self.worker)
        if len(mine) < 2:
            return mine[0] if mine else None
        nodes = zip(self.store.get_many([self.paths.live(n) for n in mine]), mine, strict=True)
        return max(((node.czxid, name) for node, name in nodes if node is not None), default=(0, None))[1]

    def _hear(self, names: Iterable[str]) -> None:
        """Log one line for each process with this worker's id that waits until this process ends."""
        waiting = membership.waiting_beside(self.tree, self.worker, names)
        for name in sorted(waiting.keys() - self._waiting):
            why = "it has this worker's id and waits until this one is gone. Give each worker an id of its own"
            self.say("rival", host=waiting[name].host, pid=waiting[name].pid, reason=why)
        self._waiting = frozenset(waiting)

    def _report(self) -> None:
        """Log one line for each record that cannot be read, not one for each observation."""
        for path in sorted(self.tree.unreadable.keys() - self._unreadable):
            self.say("unreadable", path=path, reason=self.tree.unreadable[path])
        self._unreadable = frozenset(self.tree.unreadable)

    # --- deciding and acting

    def _feed(self, event: Event) -> Generator[None, None, None]:
        self.state, instructions = self._machine(self.state, event)
        for effect in batches(instructions, ownership.AT_ONCE):
            if isinstance(effect, tuple):
                yield
                if isinstance(event, Observed) and not self._still_proven(event):
                    self.state, _ = self._machine(self.state, Suspended(self.clock()))
                    return
                self._write(effect)
            else:
                self._do(effect)
        self._say_notes(instructions)

    def _still_proven(self, seen: Observed) -> bool:
        """Return whether the observation may still be acted upon: same session, connection good, not too old."""
        fresh = self.clock() - seen.began <= self.patience
        return fresh and self.store.session == self._session and self.store.active()

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Announce():
                self.publish(leaving=True)
            case Join(reason):
                self.say("lost", reason=reason)
            case Exit():
                self.done = instruction

    def _write(self, batch: Batch) -> None:
        """Execute a batch of claims, or of releases, as one write."""
        versions = {one.partition: one.version for one in batch}
        first = batch[0]
        if isinstance(first, Release):
            self._settled.difference_update(versions)
            seen = self._assign_version if first.reason == "revoked" else None
            refused = ownership.release_all(self.tree, self._incarnation, versions, seen)
            self._say_each("released", {p: {"reason": first.reason} for p in versions if p not in refused})
            self._say_each("release-refused", {p: {"reason": why} for p, why in refused.items()})
            return
        claimed = ownership.claim_all(self.tree, self._incarnation, versions, self._assign_version)
        self._settled |= claimed.taken.keys()
        taken: dict[str, Facts] = {}
        for claim in batch:
            if isinstance(claim, Claim) and (owned := claimed.taken.get(claim.partition)) is not None:
                taken[claim.partition] = {"reason": claim.reason, "token": owned.token, "from": claim.from_worker}
        self._say_each("claimed", taken)
        self._say_each("claim-refused", {p: {"reason": why} for p, why in claimed.refused.items()})

    def _say_notes(self, instructions: Iterable[Instruction]) -> None:
        notes = [one for one in instructions if isinstance(one, Note)]
        for word in dict.fromkeys(note.word for note in notes):
            self._say_each(word, {note.partition: {"reason": note.detail} for note in notes if note.word == word})

    def _say_each(self, word: str, facts_of: Mapping[str, Facts]) -> None:
        """Log a line for each partition. Above `LINES`, partitions with the same facts share one line that counts them."""
        if len(facts_of) <= LINES:
            for partition, facts in facts_of.items():
                self.say(word, partition=partition, **facts)
            return
        alike: dict[tuple[object, ...], list[str]] = {}
        for partition, facts in facts_of.items():
            alike.setdefault(tuple(facts.values()), []).append(partition)
        for names in alike.values():
            self.say(word, partitions=len(names), first=names[0], last=names[-1], **facts_of[names[0]])

    @property
    def _incarnation(self) -> str:
        if self.state.incarnation is None:
            raise OwnershipError("This worker has not joined. Join first")
        return self.state.incarnation
