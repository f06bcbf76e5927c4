"""Choose the target of a worker without a controller, before each observation: read the others, decide, write the target.

Laws:
1. A worker decides by the protocol that the group's settings named when it joined. It keeps that protocol until it
   restarts, and does not join while a live worker runs another protocol.
2. The chooser reads the other workers when something may have changed (live workers, grabs, an owner that its worker
   waits for, a time set by its protocol), and every `REREAD_AFTER` seconds.
3. It creates the grab of a partition before its target names the partition, and releases the grab afterwards.
4. It changes no ownership record: see `rota.core.protocols.observation`.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rota.coordination.group_state import GroupState
from rota.coordination.records import Meta
from rota.core.protocols.known_protocols import check_protocol, find_protocol
from rota.core.reconcile import State
from rota.errors import ConfigError, Conflict
from rota.ids import worker_of

if TYPE_CHECKING:
    from rota.core.protocols.observation import Decide, Decision, Observation

REREAD_AFTER = 5.0  # seconds after which the others, and settled own records, are read again without a change
EAGER = 10.0  # seconds after the last change in which a worker with a change in progress observes more often


class Chooser:
    """Chooses the target of one worker. Under `assigned` it does nothing. Not thread-safe."""

    def __init__(
        self,
        tree: GroupState,
        worker: str,
        say: Callable[..., None],
        clock: Callable[[], float],
        draw: Callable[[], float],
        *,
        ordinal: int | None = None,
        replicas: int | None = None,
    ) -> None:
        self.tree, self.worker, self.say, self.clock, self.draw = tree, worker, say, clock, draw
        self.ordinal, self.replicas = ordinal, replicas
        self.protocol = "assigned"
        self._decide: Decide | None = None
        self._begin()

    def _begin(self) -> None:
        self._memory: Mapping[str, Any] = {}
        self._last: Decision | None = None
        self._seen: tuple[Observation, Mapping[str, Any]] | None = None  # the last observation and its options
        self._key: object = None  # what triggered the last observation
        self._live: frozenset[str] = frozenset()  # the live names of the last choice
        self._at = self._changed = float("-inf")  # when the others were last read, and last changed
        self._note = ""

    def join(self, meta: Meta) -> str:
        """Start a new incarnation under the group's protocol. Return why it may not join, or "". Raises ConfigError."""
        others = {
            one.worker: one.record.protocol for one in self.tree.live() if one.record and one.worker != self.worker
        }
        differ = sorted(worker for worker, protocol in others.items() if protocol != meta.protocol)
        if differ:
            return (
                f"the group's protocol is {meta.protocol}, and {', '.join(differ[:5])} still run "
                f"{others[differ[0]]}: this worker joins when they are gone. Stop them, then start all again"
            )
        self.protocol, self._decide = meta.protocol, find_protocol(meta.protocol)
        self._begin()
        return ""

    @property
    def pending(self) -> bool:
        """Whether a change is in progress. If so, an observation may differ although no record was written."""
        return self._decide is not None and (self._last is None or self._last.pending)

    @property
    def due(self) -> float | None:
        """The latest time, on this worker's clock, of the protocol's next decision. None: the usual interval."""
        return self._last.due if self._decide is not None and self._last is not None else None

    @property
    def eager(self) -> bool:
        """Whether a change is in progress and something changed recently. If so, the next observation should come soon."""
        return self.pending and (self._last is None or self.clock() - self._changed < EAGER)

    def has_missed(self, live: frozenset[str]) -> bool:
        """Return whether these live names are not those of the last choice, so that the next choice should come at once."""
        return self._decide is not None and live != self._live

    def has_read(self, since: float) -> bool:
        """Return whether the other workers were read after `since`, on this worker's clock. Under `assigned` nothing is
        read, and this is always true."""
        return self._decide is None or self._at >= since

    def choose(self, state: State, live: frozenset[str], owned: frozenset[str]) -> Generator[None, None, None]:
        """Choose a target again if something may have changed.

        `live` are the live names in the last observation; `owned` is the part of the target that this incarnation owns.
        Raises what the reads raise.
        """
        if self._decide is None or state.incarnation is None or state.done:
            return
        from rota.coordination.alone import list_grabs  # it imports numpy, which `assigned` does not need

        key = (live, list_grabs(self.tree), state.leaving is None, frozenset(state.waiting))
        now, due = self.clock(), self.due
        if key == self._key and now - self._at < REREAD_AFTER and not self.eager and (due is None or now < due):
            return
        yield
        self._key, self._live = key, live
        yield from self._look(state, owned)

    def _look(self, state: State, owned: frozenset[str]) -> Generator[None, None, None]:
        from rota.coordination.alone import grab, let_go, read_others, write_target
        from rota.core.protocols.observation import Observation

        others = read_others(self.tree, self.worker)
        self._at = self.clock()
        mine, me = others.members.get(self.worker), state.incarnation
        if mine is None or me is None or mine.worker.incarnation != me or self._decide is None:
            return  # the next observation finds out why
        if others.meta.protocol != self.protocol:
            self._tell(
                f"the group's protocol is {others.meta.protocol} now: restart this worker, it runs {self.protocol}"
            )
        seen = Observation(
            self.worker,
            others.members,
            others.partitions,
            others.grabs,
            owned & mine.target,
            ordinal=self.ordinal,
            replicas=self.replicas,
            paused=others.paused,
        )
        seen = replace(seen, contested=_find_contested(seen, state, fresh=not others.written))
        decision = self._decide_once(seen, others.meta)
        yield
        try:
            more = decision.grabs - seen.asks
            target = decision.target - (grab(self.tree, me, more) if more else frozenset())
            if target != mine.target or not others.written:
                yield
                write_target(self.tree, me, target, others.version, others.mine)
                self._say_choice(seen, target, decision)
            if less := seen.asks - decision.grabs:
                yield
                let_go(self.tree, me, less)
        except Conflict:
            self._key = ()  # another write came first, or this incarnation is gone: observe again

    def _decide_once(self, seen: "Observation", meta: Meta) -> "Decision":
        """Return the protocol's decision. It is not computed again for the same observation."""
        assert self._decide is not None
        try:
            options = check_protocol(self.protocol, meta.options if meta.protocol == self.protocol else {})
        except ConfigError as error:  # for example an option of a newer rota: no reason for all workers to end at once
            options = dict(self._seen[1]) if self._seen is not None else check_protocol(self.protocol, {})
            self._tell(f"{error}. It goes on with those that it had, or with none")
        same = (seen, options) == self._seen
        if same and self._last is not None and (self._last.due is None or self._at < self._last.due):
            return self._last
        if not same:
            self._changed = self._at
        self._seen = seen, options
        decision = self._decide(replace(seen, now=self._at, draw=self.draw()), options, self._memory)
        self._last, self._memory = decision, decision.memory
        if decision.note:
            self._tell(decision.note)
        return decision

    def _tell(self, note: str) -> None:
        if note != self._note:
            self.say("notice", reason=note)
        self._note = note

    def _say_choice(self, seen: "Observation", target: frozenset[str], decision: "Decision") -> None:
        before = seen.mine.target
        facts = {"takes": len(target - before), "gives": len(before - target), "asks": len(decision.grabs - seen.asks)}
        self.say("chose", protocol=self.protocol, holds=len(target), **{k: n for k, n in facts.items() if n})


def _find_contested(seen: "Observation", state: State, *, fresh: bool) -> frozenset[str]:
    """Return the partitions of this worker's target that another live worker owns and names too.

    In a new incarnation (`fresh`): all that another worker names.
    """
    if fresh:
        others = [one.target for name, one in seen.members.items() if name != seen.me]
        return seen.mine.target.intersection(frozenset().union(*others)) - seen.asks
    found = set()
    for partition, wait in state.waiting.items():
        worker = worker_of(wait.owner.incarnation) if wait.owner.incarnation else seen.me
        if worker != seen.me and worker in seen.members and partition in seen.members[worker].target:
            found.add(partition)
    return frozenset(found) & seen.mine.target - seen.asks
