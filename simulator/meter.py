"""Measures a simulated world: time-weighted imbalance, moves, unowned and doubly owned seconds, time to settle."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rota.ids import worker_of
from simulator.actors import Scene
from simulator.truth import Change


@dataclass(slots=True)
class Meter:
    """Integrates over virtual time; `series` holds (time, imbalance) at each change, `jumps` (time, moves so far)."""

    sim: Scene
    begin: float  # when measuring begins
    capacity: Mapping[str, float]
    must_give: Callable[[str], bool]  # whether this owner could not keep its partitions
    since: float = 0.0
    imbalance: float = 1.0
    unowned: int = 0
    doubly: int = 0
    weights: list[tuple[float, float]] = field(default_factory=list)  # (imbalance, seconds)
    series: list[tuple[float, float]] = field(default_factory=list)
    jumps: list[tuple[float, int, str]] = field(default_factory=list)
    moves: int = 0
    unavoidable_moves: int = 0
    unowned_seconds: float = 0.0
    doubly_seconds: float = 0.0
    settled_at: float = 0.0
    struck_at: float | None = None
    waits: list[float] = field(default_factory=list)

    def passes(self) -> None:
        """Add the time since the last call at the last measured values. Call it before they change, and at the end."""
        now, begin = self.sim.now, self.begin
        start = max(self.since, begin)
        if now > start:
            self.weights.append((self.imbalance, now - start))
            self.unowned_seconds += self.unowned * (now - start)
            self.doubly_seconds += self.doubly * (now - start)
        self.since = now

    def strikes(self) -> None:
        """Note an event to which the group has to react."""
        self.closes()
        self.struck_at = self.settled_at = self.sim.now

    def closes(self) -> None:
        """Note that the reaction to the last event is complete."""
        if self.struck_at is not None:
            self.waits.append(self.settled_at - self.struck_at)

    def changed(self, changes: list[Change]) -> None:
        """Measure again after owners, lives or loads changed."""
        truth = self.sim.truth
        for change in changes:
            self._move(change)
        if changes and self.struck_at is not None:
            self.settled_at = self.sim.now
        self.unowned = truth.unowned()
        value = self._imbalance()
        if value != self.imbalance or not self.series:
            self.imbalance = value
            self.series.append((self.sim.now, value))

    def _move(self, change: Change) -> None:
        truth = self.sim.truth
        if change.before is not None:
            giver = worker_of(change.before)
            truth.lost_by_need[change.partition] = self.must_give(change.before)
            truth.last[change.partition] = giver
        if change.after is None:
            return
        taker, giver_name = worker_of(change.after), truth.last.get(change.partition)
        if giver_name is not None and giver_name != taker and self.sim.now >= self.begin:
            self.moves += 1
            self.unavoidable_moves += truth.lost_by_need[change.partition]
            self.jumps.append((self.sim.now, self.moves, change.partition))
        truth.last[change.partition] = taker

    def _imbalance(self) -> float:
        """Return max/mean utilization over live workers, by true load; the mean counts every partition, owned or not."""
        truth, capacity = self.sim.truth, self.capacity
        loads = dict.fromkeys(truth.workers(), 0.0)
        for partition, owner in truth.owner.items():
            if owner is not None and truth.serving(owner):
                loads[worker_of(owner)] += truth.load[partition]
        total = sum(truth.load.values())
        if not loads or total <= 0:
            return 1.0
        mean = total / sum(capacity[w] for w in loads)
        return max(load / capacity[w] for w, load in loads.items()) / mean

    def percentile(self, share: float) -> float:
        """Return the imbalance that was not exceeded during `share` of the time."""
        return percentile(self.weights, share)


def percentile(weights: list[tuple[float, float]], share: float) -> float:
    """Return the least value whose weight, with all smaller values, reaches `share` of the whole."""
    whole = sum(w for _, w in weights)
    passed = 0.0
    for value, weight in sorted(weights):
        passed += weight
        if passed >= share * whole:
            return value
    return 1.0
