"""The judge of every simulated world. It reads the table's log and the bytes of the znodes (`truth`), and calls no judged
code. A breach is a `Violation` with its seed and the command that repeats it.

Of targets and owners, after every event:
- `disjoint`: under one head, no partition is in two effective targets, and the head's epoch only grows.
- `stolen`: an own record passes from one worker to another only if it was free, its owner is gone, or the claimant waited
  for max_shutdown. `usurped`: of two live incarnations of one worker, the older never takes from the newer.
- `own`: a record is claimed by a live incarnation that does not own it, and its version grows by one. `uninvited`: a target
  of the claimant names the partition.
- `busy`: a partition is set free only while no run of its owner works on it, except by an owner that is overdue to leave.
- `cap`: no published target and no claim brings a worker over its cap, at any instant of a handover.
- `budget`: an epoch takes from workers that could keep them no more partitions than the policy allows, and none before the
  cooldown is over. Judged by what a worker could keep, and its cap, at any moment since the controller took control.
Of the table, checkpoints and parks, after every event: see `log_checker`.
- `foreign`, `restored`: no run reports a handover as a restored ZooKeeper or table.
- `settled`: at the end every partition is owned by its target, if the target is older than a handover may take.
"""

import math
from collections import Counter
from collections.abc import Mapping

from rota.ids import worker_of
from simulator.actors import Scene
from simulator.log_checker import LogChecker
from simulator.truth import Change, Changes

SLACK = 30.0  # seconds beyond max_shutdown in which a handover is complete


class Violation(AssertionError):
    """An invariant does not hold; the message ends with the command that repeats it."""


class Checker:
    """Judges every event. If `strict`, raises at the first breach; else counts breaches in `found`."""

    def __init__(self, stage: Scene, *, strict: bool) -> None:
        self.stage, self.strict = stage, strict
        self.found: Counter[str] = Counter()
        self.said: list[str] = []
        self.log = LogChecker(stage.log, tuple(stage.truth.load), self.breach)
        self._noted: list[tuple[str, str]] = []
        self._reasons: dict[tuple[str, str], str] = {}
        self._revoked: dict[str, float] = {}  # partition -> since when its owner is not its target
        self.withdrawn: dict[str, float] = {}  # the same, if the newest epoch gave it back to its owner
        self._versions: dict[str, int] = {}  # partition -> of its own record
        self._epoch = 0
        self._round = 0.0  # when a controller took control
        self._voluntary_round = -math.inf  # that of the last epoch with a voluntary move
        self._caps: dict[str, list[int | None]] = {}  # worker -> its caps since then
        self._excused: set[str] = set()  # workers that could not keep their partitions, at a moment since then
        self.target: dict[str, str] = {}
        self._since: dict[str, float] = {}  # partition -> when its target last changed

    def breach(self, rule: str, what: str) -> None:
        """Count a breach; raise it if the checker is strict."""
        self.found[rule] += 1
        self.said.append(f"{rule} at {self.stage.now:.3f} s: {what}")
        if self.strict:
            raise Violation(f"{self.said[-1]}. Again: {self.stage.again}")

    def note(self, rule: str, what: str) -> None:
        """Note a breach that an actor observed. It is judged after the actor's step."""
        self._noted.append((rule, what))

    @property
    def pending(self) -> bool:
        """Return whether a breach was noted that no journal contains."""
        return bool(self._noted) or self.log.pending

    def after_event(self, changes: Changes) -> None:
        """Judge all rules that the last event may have broken."""
        if changes.controlled and not changes.published:
            self._round, self._caps, self._excused = self.stage.now, {}, set()
        if changes.controlled or changes.staffed:
            self._note_staff()
        if changes.published:
            self._published()
        for change in changes.owners:
            self._owner_changed(change)
        self.log.after_event(changes)
        while self._noted:
            self.breach(*self._noted.pop(0))

    def note_claim(self, incarnation: str, partition: str, reason: str) -> None:
        """Note the reason of a claim. It is judged against the own record."""
        self._reasons[incarnation, partition] = reason

    def note_report(self, partition: str, start: int, end: int) -> None:
        """Note a reported batch. A batch may be reported more than once."""
        self.log.reported.append((partition, start, end))

    def _note_staff(self) -> None:
        """Note the workers that may keep their partitions now, and their caps."""
        truth = self.stage.truth
        for worker in self.stage.team:
            self._caps.setdefault(worker, []).append(truth.cap(worker))
            if not truth.may_keep(worker):
                self._excused.add(worker)

    def _highest_cap(self, worker: str) -> int | None:
        caps = self._caps.get(worker, [None])
        return None if None in caps else max(cap for cap in caps if cap is not None)

    def _published(self) -> None:
        targets, epoch = self.stage.truth.targets(), self.stage.truth.epoch
        if epoch < self._epoch:
            self.breach("disjoint", f"the head went back to epoch {epoch}")
        if epoch > self._epoch:
            self.withdrawn = {}
            self._judge_moves(targets)
        self._epoch = epoch
        seen: dict[str, str] = {}
        for worker, partitions in targets.items():
            cap = self._highest_cap(worker)
            if cap is not None and len(partitions) > cap:
                self.breach("cap", f"the target of {worker} has {len(partitions)} partitions, its cap is {cap}")
            for partition in partitions:
                if partition in seen:
                    self.breach("disjoint", f"{partition} is in the targets of {seen[partition]} and {worker}")
                seen[partition] = worker
        for partition in self.stage.truth.load:
            if seen.get(partition) != self.target.get(partition):
                self._since[partition] = self.stage.now
        self.target = seen
        for partition, owner in self.stage.truth.owner.items():
            if owner is not None and seen.get(partition) != worker_of(owner):
                self._revoked.setdefault(partition, self.stage.now)
            elif (since := self._revoked.pop(partition, None)) is not None:
                self.withdrawn[partition] = since

    def _judge_moves(self, targets: Mapping[str, frozenset[str]]) -> None:
        """Judge budget and cooldown. A move from a worker that could keep the partition is voluntary, unless it makes room
        under the worker's cap for partitions that no other worker keeps.
        """
        policy, placed = self.stage.policy, {p for partitions in targets.values() for p in partitions}
        before: dict[str, set[str]] = {}
        for partition, worker in self.target.items():
            before.setdefault(worker, set()).add(partition)
        voluntary = 0
        for worker, had in before.items():
            now = targets.get(worker, frozenset())
            lost = (had & placed) - now
            if lost and worker not in self._excused:
                homeless = sum(self.target.get(p) in (None, *self._excused) for p in now - had)
                caps = [cap for cap in self._caps.get(worker, ()) if cap is not None]
                room = len(had) + homeless - min(caps, default=len(had) + homeless)
                voluntary += max(0, len(lost) - max(0, room))
        if policy.budget is not None and voluntary > policy.budget:
            self.breach("budget", f"{voluntary} voluntary moves in one epoch, the budget is {policy.budget}")
        if voluntary and self.stage.now < self._voluntary_round + policy.cooldown:
            self.breach("budget", f"a voluntary move {self.stage.now - self._voluntary_round:.1f} s after the last")
        if voluntary:
            self._voluntary_round = self._round

    def _owner_changed(self, change: Change) -> None:
        before, after, known = change.before, change.after, self._versions.get(change.partition, 0)
        if change.version != known + 1:
            self.breach("own", f"{change.partition} went from version {known} to {change.version}")
        self._versions[change.partition] = change.version
        if after is None:
            self._set_free(change.partition, before or "")
        else:
            self._claimed(change, before, after)

    def _claimed(self, change: Change, before: str | None, after: str) -> None:
        partition, live = change.partition, self.stage.truth.live
        # The claimant may have read its target before the newest epoch: then it waited since the earlier revocation.
        since = self._revoked.pop(partition, None) or self.withdrawn.get(partition, self.stage.now)
        waited = self.stage.now - since
        if after not in live or before == after:
            self.breach("own", f"{partition} was claimed by {after}, which is not live, or owned it")
        if before in live and before is not None and worker_of(before) != worker_of(after):
            forced = self._reasons.get((after, partition)) == "forced"
            if not (forced and waited >= 0.97 * self.stage.timing.max_shutdown):
                self.breach("stolen", f"{after} took {partition} from {before}, which is live, after {waited:.1f} s")
        elif before in live and before is not None and live[before] > live.get(after, 0):
            self.breach("usurped", f"{partition} was taken from {before} by its older twin {after}")
        if self.target.get(partition) != worker_of(after) and not self._invited(partition, worker_of(after)):
            self.breach("uninvited", f"{partition} was claimed by {after}, which no target gives it to")
        cap = self.stage.truth.cap(worker_of(after))
        if cap is not None and self.stage.truth.held[after] > cap:
            self.breach("cap", f"{after} holds {self.stage.truth.held[after]} partitions, its cap is {cap}")

    def _invited(self, partition: str, worker: str) -> bool:
        """Return whether a slot of the worker names the partition: it may have read its targets before the last epoch."""
        return any(partition in partitions for _, partitions in self.stage.truth.slots.get(worker, ()))

    def _set_free(self, partition: str, owner: str) -> None:
        process = self.stage.worker_as(owner)
        overdue = process is not None and process.overdue
        runs = (r for r in self.stage.runs if r.incarnation == owner and partition in r.working)
        if any(run.known for run in runs) and not overdue:
            self.breach("busy", f"{owner} set {partition} free while its run works on it")

    def at_the_end(self) -> None:
        """Judge the quiet end: each owner is its target, except for partitions that an assignor by load just moved."""
        truth, patience = self.stage.truth, self.stage.timing.max_shutdown + SLACK
        for partition in truth.load:
            owner, target = truth.owner.get(partition), self.target.get(partition)
            held = worker_of(owner) if owner in truth.live and owner is not None else None
            if held != target and self.stage.now - self._since.get(partition, 0.0) > patience:
                self.breach("settled", f"{partition} is owned by {held}, its target is {target}")
