"""Move a worker's ownership towards its target: a pure state machine from events to instructions.

Laws of the `assigned` protocol, in which a controller publishes the target, in rank order:
1. A worker claims a partition only while its target names the partition, and while it holds fewer partitions than its cap
   (draining partitions count). The partition's own record must be free, or name an incarnation that is gone or an older
   incarnation of the same worker. Otherwise the worker may claim by force `max_shutdown` seconds (on its monotonic clock)
   after it first read the record with this owner, if its target named the partition for the whole time.
2. A worker releases a partition only after the target dropped it *and* no run of this incarnation consumes it. A worker
   that leaves claims nothing, and releases everything `max_shutdown` seconds after it was asked to leave.
3. An observation that began before the last suspension is discarded: every record is read again first.
4. Only the newest live incarnation of a worker acts. An older incarnation exits and writes nothing more.
5. Level, not edge: the same observation causes the same instructions, so a refused or lost instruction is repeated.

The machine does no I/O. Its driver (the agent process or a simulation) reads in this order: target, own records, live
incarnations, runs. Own records come before live incarnations: in the other order, a worker that joined and claimed in
between would seem gone. Runs come last: a run registers itself before it reads the target, so a run that is missing here
will read that the target dropped the partition.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from rota.ids import worker_of

Reason = Literal["free", "gone", "older", "forced", "revoked", "leaving"]


@dataclass(frozen=True, slots=True)
class Owner:
    """A partition's own record: the incarnation that it names (None: free) and the dataVersion at which it was read."""

    incarnation: str | None
    version: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The own record that blocks a claim, and the time on this worker's clock when the worker first read it.

    `full`: only the cap prevents the claim.
    """

    owner: Owner
    since: float
    full: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """The memory of a worker between two events. Everything else is read again for each observation."""

    worker: str
    max_shutdown: float
    incarnation: str | None = None
    leaving: float | None = None  # when the worker was asked to leave
    suspended: float | None = None  # when the last suspension was noticed
    epoch: int | None = None  # of the effective slot in the last observation
    held: frozenset[str] = frozenset()  # partitions that this incarnation owns or tried to claim
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()
    done: bool = False

    def interest(self, target: frozenset[str] | None) -> frozenset[str]:
        """Return the partitions whose own records an observation must contain, given the target that was just read."""
        return self.held | (target or frozenset())

    def let_go(self, target: frozenset[str] | None, owners: Mapping[str, Owner]) -> bool:
        """Return whether the target dropped a partition that this incarnation owns. Only then must an observation contain
        the runs of the incarnation."""
        mine = (p for p, owner in owners.items() if owner.incarnation == self.incarnation)
        return target is not None and any(p not in target for p in mine)


# --- events


@dataclass(frozen=True, slots=True)
class Joined:
    """The worker created a session and its live node: a new incarnation, which owns nothing yet."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class Observed:
    """One observation, read from `began` to `now` (monotonic clock) in the order target, own records, live nodes, runs.

    `target` is None if it cannot be read now; then the worker claims nothing and revokes nothing. `previous` is the epoch
    in the other slot of the assign node. If neither epoch is that of the last observation, all waits start again. A
    partition without an entry in `owners` was not read or cannot be read, and keeps its record. The own records of
    `unread` did not fit into this observation; their last known state still holds. `busy` are the partitions of this
    incarnation's runs, read only if it must release a partition. `cap` is the largest number of partitions that the
    worker may hold (None: no bound).
    """

    began: float
    now: float
    epoch: int | None
    previous: int | None
    target: frozenset[str] | None
    owners: Mapping[str, Owner]
    live: frozenset[str]
    newest: str | None
    busy: frozenset[str]
    cap: int | None = None
    unread: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Suspended:
    """The connection may be broken, or the observation took too long. Nothing is written until records are read again."""

    now: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The session ended, and with it every ownership of this incarnation. `why` is the reason, as far as it is known."""

    why: str = "the session is lost"


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The worker was asked to leave (SIGTERM). With `hurry`, the next observation releases everything."""

    now: float
    hurry: bool = False


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed, and no observation could be taken."""

    now: float


Event = Joined | Observed | Suspended | Lost | LeaveRequested | Ticked

# --- instructions


@dataclass(frozen=True, slots=True)
class Claim:
    """Set the partition's own record to this incarnation, if the record is still at `version`."""

    partition: str
    version: int
    reason: Reason
    from_worker: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Set the partition's own record free, if the record is still at `version`."""

    partition: str
    version: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Announce:
    """Mark the live record as leaving, so that the controller reassigns the partitions."""


@dataclass(frozen=True, slots=True)
class Join:
    """Create a new session and a new live node."""

    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """Log a decision about a partition, `wait` or `drain`, without a write."""

    word: Literal["wait", "drain"]
    partition: str
    detail: str


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process. `clean`: the worker holds no partition any more."""

    clean: bool
    reason: str


Instruction = Claim | Release | Announce | Join | Note | Exit
Batch = tuple[Claim, ...] | tuple[Release, ...]
Machine = Callable[[State, Event], tuple[State, tuple[Instruction, ...]]]


def assigned(state: State, event: Event) -> tuple[State, tuple[Instruction, ...]]:
    """Run one step of the `assigned` protocol (see the laws of the module)."""
    if state.done:
        return state, ()
    match event:
        case Joined(incarnation):
            return _fresh(state, incarnation), (Announce(),) if state.leaving is not None else ()
        case Suspended(now):
            return replace(state, suspended=now), ()
        case Lost(why):
            return _lost(state, why)
        case LeaveRequested(now, hurry):
            return _leave(state, now - state.max_shutdown if hurry else now)
        case Ticked(now):
            if state.leaving is not None and now - state.leaving >= state.max_shutdown:
                return _exit(state, clean=False, reason="asked to leave, and ZooKeeper did not answer in max_shutdown")
            return state, ()
        case Observed():
            return _observed(state, event)


def _fresh(state: State, incarnation: str | None) -> State:
    """Return the state of the same worker without anything of its former incarnation."""
    return State(state.worker, state.max_shutdown, incarnation, leaving=state.leaving)


def _lost(state: State, reason: str) -> tuple[State, tuple[Instruction, ...]]:
    if state.leaving is not None:
        return _exit(_fresh(state, None), clean=True, reason=f"asked to leave, and {reason}")
    return _fresh(state, None), (Join(reason),)


def _leave(state: State, since: float) -> tuple[State, tuple[Instruction, ...]]:
    if state.leaving is not None:
        return replace(state, leaving=min(since, state.leaving)), ()
    if state.incarnation is None:
        return _exit(state, clean=True, reason="asked to leave before it joined")
    return replace(state, leaving=since, waiting={}), (Announce(),)


def _exit(state: State, *, clean: bool, reason: str) -> tuple[State, tuple[Instruction, ...]]:
    return replace(state, done=True), (Exit(clean, reason),)


def _observed(state: State, seen: Observed) -> tuple[State, tuple[Instruction, ...]]:
    me = state.incarnation
    if me is None or (state.suspended is not None and seen.began <= state.suspended):
        return state, ()
    if me not in seen.live:
        return _lost(state, "its live node is gone")
    if seen.newest is not None and seen.newest != me:
        return _exit(state, clean=False, reason=f"a newer incarnation of this id is live: {seen.newest}")
    gone = {p for p, owner in seen.owners.items() if owner.incarnation != me}
    mine = {p for p, owner in seen.owners.items() if owner.incarnation == me}
    held = (state.held - gone) | mine
    releases, draining = _releases(state, seen)
    claims, waiting = _claims(state, seen, len(held))
    notes = _notes(state, waiting, draining)
    after = replace(
        state,
        suspended=None,
        epoch=seen.epoch if seen.target is not None else state.epoch,
        held=held | {c.partition for c in claims},
        waiting=waiting,
        draining=draining,
    )
    if state.leaving is not None and not after.held:
        return _exit(after, clean=True, reason="left: everything is handed over")
    unknown = not mine and not after.held & seen.unread
    if _overdue(state, seen) and unknown:  # records that cannot be read cannot be released
        return _exit(after, clean=False, reason=f"left: nothing is known of {', '.join(sorted(after.held))}")
    return after, (*releases, *claims, *notes)


def _releases(state: State, seen: Observed) -> tuple[list[Release], frozenset[str]]:
    """Return the releases of this observation, and the partitions that wait until their run ends."""
    overdue = _overdue(state, seen)
    releases: list[Release] = []
    draining = set(state.draining & seen.unread)
    for partition, owner in sorted(seen.owners.items()):
        if owner.incarnation != state.incarnation:
            continue
        if overdue:
            releases.append(Release(partition, owner.version, "leaving"))
        elif seen.target is None or partition in seen.target:
            continue
        elif partition in seen.busy:
            draining.add(partition)
        else:
            releases.append(Release(partition, owner.version, "revoked"))
    return releases, frozenset(draining)


def _overdue(state: State, seen: Observed) -> bool:
    return state.leaving is not None and seen.now - state.leaving >= state.max_shutdown


def _claims(state: State, seen: Observed, held: int) -> tuple[list[Claim], dict[str, Waiting]]:
    """Return the claims of this observation, and the partitions that wait. `held` is the number already held."""
    claims: list[Claim] = []
    waiting: dict[str, Waiting] = {}
    if state.leaving is not None or seen.target is None:
        return claims, waiting
    unbroken = state.epoch in (seen.epoch, seen.previous)
    if unbroken:
        waiting |= {p: state.waiting[p] for p in state.waiting.keys() & seen.target & seen.unread}
    for partition in sorted(seen.target & seen.owners.keys()):
        owner = seen.owners[partition]
        if owner.incarnation == state.incarnation:
            continue
        before = state.waiting.get(partition) if unbroken else None
        since = before.since if before is not None and before.owner == owner else seen.now
        reason = _reason(state, seen, owner, since)
        full = reason is not None and seen.cap is not None and held + len(claims) >= seen.cap
        if reason is None or full:
            waiting[partition] = Waiting(owner, since, full)
        else:
            claims.append(Claim(partition, owner.version, reason, owner.incarnation))
    return claims, waiting


def _reason(state: State, seen: Observed, owner: Owner, since: float) -> Reason | None:
    """Return why a partition of the target may be claimed now; None while the worker waits for its owner."""
    if owner.incarnation is None:
        return "free"
    if owner.incarnation not in seen.live:
        return "gone"
    if worker_of(owner.incarnation) == state.worker:
        return "older"
    if seen.now - since >= state.max_shutdown:
        return "forced"
    return None


def _notes(state: State, waiting: Mapping[str, Waiting], draining: frozenset[str]) -> list[Note]:
    """Return one note for each wait or drain that begins now, none for one that lasts."""
    begun = [
        Note("wait", p, "as many are held as may be" if w.full else f"owner={w.owner.incarnation}")
        for p, w in waiting.items()
        if p not in state.waiting or state.waiting[p].owner != w.owner
    ]
    return begun + [Note("drain", p, "a run consumes it") for p in sorted(draining - state.draining)]


def batches(instructions: Iterable[Instruction], most: int) -> Iterator[Batch | Instruction]:
    """Yield instructions in order; consecutive claims, or releases with one reason, in batches of at most `most`.

    Each batch is one write. Before each batch, the driver checks that its observation is still valid.
    """
    batch: list[Claim] | list[Release] = []
    for one in instructions:
        if batch and (len(batch) == most or not _together(batch[0], one)):
            yield tuple(batch)  # type: ignore[misc]
            batch = []
        if isinstance(one, Claim | Release):
            batch.append(one)  # type: ignore[arg-type]
        else:
            yield one
    if batch:
        yield tuple(batch)  # type: ignore[misc]


def _together(one: Claim | Release, other: Instruction) -> bool:
    if isinstance(one, Claim):
        return isinstance(other, Claim)
    return isinstance(other, Release) and one.reason == other.reason
