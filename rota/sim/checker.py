"""The invariants, checked after every event. A breach is a `Violation` with its seed and the line that repeats it.

1. `disjoint`: under one head, no partition stands in two effective targets, and the head's epoch only grows.
2. `stolen`: an own record passes from one worker to another only through free, or because its owner is gone, is an older
   incarnation of the same worker, or was waited for during max_shutdown.
3. `busy`: a partition is set free only when no run of its owner works on it, but by one that is overdue to leave.
4. `gap`: a batch is committed from exactly where the table stands: nothing lost, nothing twice.
5. `cap`: no published target and no claim brings a worker over its cap, at no instant of a hand-over.
6. `budget`: a plan takes no more voluntary moves than the policy allows, and none before the cooldown is over.
7. `settled`: at the end every partition is owned by the worker that its target has named for longer than a hand-over
   may take.
"""

import math
from collections import Counter
from typing import TYPE_CHECKING

from rota.core import Plan
from rota.ids import worker_of
from rota.sim.truth import Change

if TYPE_CHECKING:
    from rota.sim.simulation import Simulation


SLACK = 30.0  # seconds beyond max_shutdown in which a hand-over is done


class Violation(AssertionError):
    """An invariant does not hold; the message ends with the line that shows it again."""


class Checker:
    """Judges every event; raises at the first breach, or counts them where a guard was taken out on purpose."""

    def __init__(self, sim: "Simulation") -> None:
        self.sim = sim
        self.found: Counter[str] = Counter()
        self._reasons: dict[tuple[str, str], str] = {}
        self._revoked: dict[str, float] = {}  # partition -> since when its owner is not its target
        self._epoch = 0
        self._voluntary_at = -math.inf
        self._caps: dict[str, int | None] = {}
        self._target: dict[str, str] = {}
        self._since: dict[str, float] = {}  # partition -> when its target became what it is

    def breach(self, rule: str, what: str) -> None:
        """Notes a breach; raises unless guards were taken out."""
        self.found[rule] += 1
        if not self.sim.ablation.removed:
            raise Violation(f"{rule} at {self.sim.now:.3f} s: {what}. Again: {self.sim.again}")

    def after_event(self, changes: list[Change]) -> None:
        """Everything that may have been broken by what just happened."""
        truth = self.sim.truth
        if truth.published:
            truth.published.clear()
            self._published()
        for change in changes:
            self._owner_changed(change)

    def intends(self, incarnation: str, partition: str, reason: str) -> None:
        """An agent is about to claim for this reason; the record tells whether that was right."""
        self._reasons[incarnation, partition] = reason

    def committed(self, partition: str, start: int, stood: int) -> None:
        """A batch from `start` was published while the table stood at `stood`."""
        if start != stood:
            self.breach("gap", f"{partition} was committed from {start} while the table stood at {stood}")

    def planned(self, plan: Plan) -> None:
        """Budget and cooldown hold; what is published next is judged by the caps that this plan has read."""
        policy, snapshot = self.sim.world.policy, plan.assignment.snapshot
        voluntary = plan.measures.moves - plan.measures.unavoidable_moves
        if policy.budget is not None and voluntary > policy.budget:
            self.breach("budget", f"{voluntary} voluntary moves in one plan, the budget is {policy.budget}")
        if voluntary and snapshot.now < self._voluntary_at + policy.cooldown:
            self.breach("budget", f"a voluntary move {snapshot.now - self._voluntary_at:.1f} s after the last")
        self._voluntary_at = snapshot.now if voluntary else self._voluntary_at
        self._caps = {w.id: w.max_partitions for w in snapshot.workers}

    def _published(self) -> None:
        head, targets = self.sim.reader.targets()
        if head.record.epoch < self._epoch:
            self.breach("disjoint", f"the head went back to epoch {head.record.epoch}")
        self._epoch = head.record.epoch
        seen: dict[str, str] = {}
        for worker, target in targets.items():
            cap = self._caps.get(worker)
            if cap is not None and len(target.partitions) > cap:
                self.breach("cap", f"{worker} shall hold {len(target.partitions)} partitions, its cap is {cap}")
            for partition in target.partitions:
                if partition in seen:
                    self.breach("disjoint", f"{partition} stands in the targets of {seen[partition]} and {worker}")
                seen[partition] = worker
        for partition in self.sim.truth.load:
            if seen.get(partition) != self._target.get(partition):
                self._since[partition] = self.sim.now
        self._target = seen
        for partition, owner in self.sim.truth.owner.items():
            if owner is not None and seen.get(partition) != worker_of(owner):
                self._revoked.setdefault(partition, self.sim.now)
            else:
                self._revoked.pop(partition, None)

    def _owner_changed(self, change: Change) -> None:
        truth, before, after = self.sim.truth, change.before, change.after
        if after is None:
            self._set_free(change.partition, before or "")
            return
        waited = self.sim.now - self._revoked.pop(change.partition, self.sim.now)
        if before is not None and before in truth.live and worker_of(before) != worker_of(after):
            forced = self._reasons.get((after, change.partition)) == "forced"
            if not (forced and waited >= 0.97 * self.sim.world.timing.max_shutdown):
                self.breach(
                    "stolen", f"{after} took {change.partition} from {before}, which is live, after {waited:.1f} s"
                )
        cap = self.sim.cap_of(worker_of(after))
        if cap is not None and truth.held[after] > cap:
            self.breach("cap", f"{after} holds {truth.held[after]} partitions, its cap is {cap}")

    def _set_free(self, partition: str, owner: str) -> None:
        agent = next((a for a in self.sim.agents[worker_of(owner)] if a.incarnation == owner), None)
        leaving = agent.state.leaving if agent is not None else None
        timing = self.sim.world.timing
        overdue = agent is not None and leaving is not None and agent.clock() - leaving >= timing.max_shutdown
        if owner in self.sim.truth.working.get(partition, ()) and not overdue:
            self.breach("busy", f"{owner} set {partition} free while its run works on it")

    def at_the_end(self) -> None:
        """The world is quiet: ownership is what the target says, but for what a load-driven assignor just moved."""
        truth, patience = self.sim.truth, self.sim.world.timing.max_shutdown + SLACK
        for partition in truth.load:
            owner, target = truth.owner.get(partition), self._target.get(partition)
            held = worker_of(owner) if owner in truth.live and owner is not None else None
            if held != target and self.sim.now - self._since.get(partition, 0.0) > patience:
                self.breach("settled", f"{partition} is owned by {held}, its target is {target}")
