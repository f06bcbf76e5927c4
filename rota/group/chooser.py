"""What a worker of a group without a controller does before each look: it sees the others, decides, writes its own target.

Laws:
1. It decides by the protocol that the group's settings named when it joined. It keeps to that until it is restarted, and
   joins no live worker of another protocol.
2. It reads the others where something may have changed (who is live, what is asked for, what it waits for, a time that its
   protocol named), and every `PROOF` seconds.
3. It asks for a partition before its target names that, and lets the grab go after.
4. Nothing here owns anything: see `rota.core.protocols.observation`.
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

PROOF = 5.0  # seconds after which the others are read again where nothing seems to have changed
EAGER = 10.0  # seconds in which it looks again soon while something is on its way, counted from the last change


class Chooser:
    """Chooses the target of one worker; under `assigned` it does nothing. Not for several threads."""

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
        self._seen: tuple[Observation, Mapping[str, Any]] | None = None  # and the options
        self._key: object = None  # what the last look was taken for
        self._at = self._changed = float("-inf")  # when the others were read last, and seen to have changed
        self._note = ""

    def join(self, meta: Meta) -> str:
        """A new life begins, under the protocol of the group. Why it may not; empty if it may. Raises ConfigError."""
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
        """Whether something is on its way, so that a look may find something although nobody wrote."""
        return self._decide is not None and (self._last is None or self._last.pending)

    @property
    def due(self) -> float | None:
        """When its protocol wants to look again at the latest, on the own clock; None: as usual."""
        return self._last.due if self._decide is not None and self._last is not None else None

    @property
    def eager(self) -> bool:
        """Whether something is on its way, and changed not long ago: so that the next look should come soon."""
        return self.pending and (self._last is None or self.clock() - self._changed < EAGER)

    def has_read(self, since: float) -> bool:
        """Whether it read the others since then, on the own clock. `assigned` has nobody to read."""
        return self._decide is None or self._at >= since

    def choose(self, state: State, live: frozenset[str], owned: frozenset[str]) -> Generator[None, None, None]:
        """Chooses anew if something may have changed: `live` are the names that the last look saw, `owned` what is this
        incarnation's of its target. Raises as the reads do."""
        if self._decide is None or state.incarnation is None or state.done:
            return
        from rota.coordination.alone import list_grabs  # it imports numpy, and `assigned` does without

        key = (live, list_grabs(self.tree), state.leaving is None, frozenset(state.waiting))
        now, due = self.clock(), self.due
        if key == self._key and now - self._at < PROOF and not self.eager and (due is None or now < due):
            return
        yield
        self._key = key
        yield from self._look(state, owned)

    def _look(self, state: State, owned: frozenset[str]) -> Generator[None, None, None]:
        from rota.coordination.alone import grab, let_go, read_others, write_target
        from rota.core.protocols.observation import Observation

        others = read_others(self.tree, self.worker)
        self._at = self.clock()
        mine, me = others.members.get(self.worker), state.incarnation
        if mine is None or me is None or mine.worker.incarnation != me or self._decide is None:
            return  # the look that follows finds out why
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
                write_target(self.tree, me, target, others.version)
                self._say_choice(seen, target, decision)
            if less := seen.asks - decision.grabs:
                yield
                let_go(self.tree, me, less)
        except Conflict:
            self._key = ()  # somebody wrote first, or this incarnation is gone: look again

    def _decide_once(self, seen: "Observation", meta: Meta) -> "Decision":
        """What the protocol says; the same as before where it would see the same."""
        assert self._decide is not None
        try:
            options = check_protocol(self.protocol, meta.options if meta.protocol == self.protocol else {})
        except ConfigError as error:  # say, of a newer rota: no reason for all workers to end at once
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
    """What this worker names in vain: its owner is a live worker that names it too. In a new life: what another names."""
    if fresh:
        others = [one.target for name, one in seen.members.items() if name != seen.me]
        return seen.mine.target.intersection(frozenset().union(*others)) - seen.asks
    found = set()
    for partition, wait in state.waiting.items():
        worker = worker_of(wait.owner.incarnation) if wait.owner.incarnation else seen.me
        if worker != seen.me and worker in seen.members and partition in seen.members[worker].target:
            found.add(partition)
    return frozenset(found) & seen.mine.target - seen.asks
