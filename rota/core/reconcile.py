"""Own records brought towards the target, one worker at a time: a pure machine, events in, instructions out.

Laws, in rank order, of `assigned` (the protocol in which a controller publishes the target):
1. A partition is claimed only while the target names it, and only from nobody, from an incarnation that is gone, from
   an older incarnation of the same worker, or by force: after `max_shutdown` on this worker's own monotonic clock since
   it first saw that very owner record while the partition stayed in its target without a break. And only while this
   incarnation holds fewer than its cap, counting what it still drains: at no instant does it hold more.
2. A partition is released only after the target dropped it *and* no run of this incarnation consumes it. A worker that
   leaves releases everything `max_shutdown` after it was told to, and claims nothing meanwhile.
3. Nothing is decided on a look that began before the last suspension: every record is proven again first.
4. The newest live incarnation of a worker counts; an older one gives up and writes nothing any more.
5. Level, not edge: the same look gives the same instructions, so a refused or lost instruction is found again.

The machine does no I/O. Whoever drives it (the agent process, the simulations) takes a look in this order: target,
own records, live incarnations, runs. Own before live: the other order takes a worker that joined and claimed in between
for dead. Runs last: a run enters itself first and reads the target afterwards, so one that is not seen here will see
that the target dropped the partition.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from rota.ids import worker_of

Reason = Literal["free", "gone", "older", "forced", "revoked", "leaving"]


@dataclass(frozen=True, slots=True)
class Owner:
    """An own record as read: the incarnation that it names (None: free) and the dataVersion it was read at."""

    incarnation: str | None
    version: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The owner record that stands in the way of a claim, and when it was first seen, on this worker's own clock; `full`:
    it might be claimed, but for the cap."""

    owner: Owner
    since: float
    full: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """All that a worker remembers between two events; everything else is read again at each look."""

    worker: str
    max_shutdown: float
    incarnation: str | None = None
    leaving: float | None = None  # when it was told to leave
    suspended: float | None = None  # when the last suspension was noticed
    epoch: int | None = None  # of the effective slot at the last look
    held: frozenset[str] = frozenset()  # what this incarnation owns or has tried to claim
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()
    done: bool = False

    def interest(self, target: frozenset[str] | None) -> frozenset[str]:
        """The partitions whose own records a look must hold, given the target just read."""
        return self.held | (target or frozenset())

    def let_go(self, target: frozenset[str] | None, owners: Mapping[str, Owner]) -> bool:
        """Whether the target dropped something that this incarnation owns: only then a look must hold its runs."""
        mine = (p for p, owner in owners.items() if owner.incarnation == self.incarnation)
        return target is not None and any(p not in target for p in mine)


# --- events


@dataclass(frozen=True, slots=True)
class Joined:
    """A session was made and its live node created: a new incarnation, which owns nothing yet."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class Looked:
    """One look, taken from `began` to `now` (own monotonic clock) in the order target, own records, live, runs.

    `target` is None where it cannot be read now: nothing is concluded from that. `previous` is the epoch in the other
    slot of the assign node; it tells one publication since the last look from several. A partition without an entry in
    `owners` was not read or cannot be read: it is left alone. Of those the `unread` ones had no room in this look: what
    was known of them still holds. `busy` are the partitions of this incarnation's runs,
    read where it must let go of any. `cap` is how many partitions the
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
    """The connection is not known to be good, or the own deadline passed: nothing may be written until it is proven."""

    now: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The session is gone, and with it everything that this incarnation owned; `why`, as far as it is known."""

    why: str = "the session is lost"


@dataclass(frozen=True, slots=True)
class Told:
    """The worker was told to leave (SIGTERM); `hurry`: told again, so everything is released at the next look."""

    now: float
    hurry: bool = False


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed and no look could be taken."""

    now: float


Event = Joined | Looked | Suspended | Lost | Told | Ticked

# --- instructions


@dataclass(frozen=True, slots=True)
class Claim:
    """Set the own record to this incarnation, if it is still at `version`."""

    partition: str
    version: int
    reason: Reason
    from_worker: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Set the own record free, if it is still at `version`."""

    partition: str
    version: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Announce:
    """Mark the live record as leaving, so that the controller takes the partitions away."""


@dataclass(frozen=True, slots=True)
class Join:
    """Make a new session and a new live node."""

    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """Nothing to do, but a decision worth a line: `wait` or `drain`, for a partition."""

    word: Literal["wait", "drain"]
    partition: str
    detail: str


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process; `clean` if nothing is held any more."""

    clean: bool
    reason: str


Instruction = Claim | Release | Announce | Join | Note | Exit
Batch = tuple[Claim, ...] | tuple[Release, ...]
Machine = Callable[[State, Event], tuple[State, tuple[Instruction, ...]]]


def assigned(state: State, event: Event) -> tuple[State, tuple[Instruction, ...]]:
    """One step of the `assigned` protocol; see the module's laws. Pure: the same input gives the same output."""
    if state.done:
        return state, ()
    match event:
        case Joined(incarnation):
            return _fresh(state, incarnation), (Announce(),) if state.leaving is not None else ()
        case Suspended(now):
            return replace(state, suspended=now), ()
        case Lost(why):
            return _lost(state, why)
        case Told(now, hurry):
            return _told(state, now - state.max_shutdown if hurry else now)
        case Ticked(now):
            if state.leaving is not None and now - state.leaving >= state.max_shutdown:
                return _exit(state, clean=False, reason="told to leave, and ZooKeeper did not answer in max_shutdown")
            return state, ()
        case Looked():
            return _looked(state, event)


def _fresh(state: State, incarnation: str | None) -> State:
    """The same worker, with nothing of its former incarnation."""
    return State(state.worker, state.max_shutdown, incarnation, leaving=state.leaving)


def _lost(state: State, reason: str) -> tuple[State, tuple[Instruction, ...]]:
    if state.leaving is not None:
        return _exit(_fresh(state, None), clean=True, reason=f"told to leave, and {reason}")
    return _fresh(state, None), (Join(reason),)


def _told(state: State, since: float) -> tuple[State, tuple[Instruction, ...]]:
    if state.leaving is not None:
        return replace(state, leaving=min(since, state.leaving)), ()
    if state.incarnation is None:
        return _exit(state, clean=True, reason="told to leave before it joined")
    return replace(state, leaving=since, waiting={}), (Announce(),)


def _exit(state: State, *, clean: bool, reason: str) -> tuple[State, tuple[Instruction, ...]]:
    return replace(state, done=True), (Exit(clean, reason),)


def _looked(state: State, look: Looked) -> tuple[State, tuple[Instruction, ...]]:
    me = state.incarnation
    if me is None or (state.suspended is not None and look.began <= state.suspended):
        return state, ()
    if me not in look.live:
        return _lost(state, "its live node is gone")
    if look.newest is not None and look.newest != me:
        return _exit(state, clean=False, reason=f"a newer incarnation of this id is live: {look.newest}")
    gone = {p for p, owner in look.owners.items() if owner.incarnation != me}
    mine = {p for p, owner in look.owners.items() if owner.incarnation == me}
    held = (state.held - gone) | mine
    releases, draining = _releases(state, look)
    claims, waiting = _claims(state, look, len(held))
    notes = _notes(state, waiting, draining)
    after = replace(
        state,
        suspended=None,
        epoch=look.epoch if look.target is not None else state.epoch,
        held=held | {c.partition for c in claims},
        waiting=waiting,
        draining=draining,
    )
    if state.leaving is not None and not after.held:
        return _exit(after, clean=True, reason="left: everything is handed over")
    unknown = not mine and not after.held & look.unread
    if _overdue(state, look) and unknown:  # what is left cannot be read, so it cannot be released either
        return _exit(after, clean=False, reason=f"left: nothing is known of {', '.join(sorted(after.held))}")
    return after, (*releases, *claims, *notes)


def _releases(state: State, look: Looked) -> tuple[list[Release], frozenset[str]]:
    """What goes now, and what waits for its run to end."""
    overdue = _overdue(state, look)
    releases: list[Release] = []
    draining = set(state.draining & look.unread)
    for partition, owner in sorted(look.owners.items()):
        if owner.incarnation != state.incarnation:
            continue
        if overdue:
            releases.append(Release(partition, owner.version, "leaving"))
        elif look.target is None or partition in look.target:
            continue
        elif partition in look.busy:
            draining.add(partition)
        else:
            releases.append(Release(partition, owner.version, "revoked"))
    return releases, frozenset(draining)


def _overdue(state: State, look: Looked) -> bool:
    return state.leaving is not None and look.now - state.leaving >= state.max_shutdown


def _claims(state: State, look: Looked, held: int) -> tuple[list[Claim], dict[str, Waiting]]:
    """What is taken now beside the `held`, and who is waited for since when."""
    claims: list[Claim] = []
    waiting: dict[str, Waiting] = {}
    if state.leaving is not None or look.target is None:
        return claims, waiting
    unbroken = state.epoch in (look.epoch, look.previous)
    if unbroken:
        waiting |= {p: state.waiting[p] for p in state.waiting.keys() & look.target & look.unread}
    for partition in sorted(look.target & look.owners.keys()):
        owner = look.owners[partition]
        if owner.incarnation == state.incarnation:
            continue
        before = state.waiting.get(partition) if unbroken else None
        since = before.since if before is not None and before.owner == owner else look.now
        reason = _reason(state, look, owner, since)
        full = reason is not None and look.cap is not None and held + len(claims) >= look.cap
        if reason is None or full:
            waiting[partition] = Waiting(owner, since, full)
        else:
            claims.append(Claim(partition, owner.version, reason, owner.incarnation))
    return claims, waiting


def _reason(state: State, look: Looked, owner: Owner, since: float) -> Reason | None:
    """Why a partition in the target may be claimed now, or None: its owner is waited for."""
    if owner.incarnation is None:
        return "free"
    if owner.incarnation not in look.live:
        return "gone"
    if worker_of(owner.incarnation) == state.worker:
        return "older"
    if look.now - since >= state.max_shutdown:
        return "forced"
    return None


def _notes(state: State, waiting: Mapping[str, Waiting], draining: frozenset[str]) -> list[Note]:
    """One note when a wait or a drain begins, none while it lasts."""
    begun = [
        Note("wait", p, "as many are held as may be" if w.full else f"owner={w.owner.incarnation}")
        for p, w in waiting.items()
        if p not in state.waiting or state.waiting[p].owner != w.owner
    ]
    return begun + [Note("drain", p, "a run consumes it") for p in sorted(draining - state.draining)]


def batches(instructions: Iterable[Instruction], most: int) -> Iterator[Batch | Instruction]:
    """The instructions in their order, claims that follow each other together, `most` at a time, and so releases for one
    reason. Each batch is one effect: before each, whoever drives the machine proves that its look still counts."""
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
