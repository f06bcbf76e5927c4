"""Guards taken away from outside, to count the damage: a store that changes a multi on its way, a machine that is shown
another observation, a tree that hides what it read. What ships has no switch for that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from rota.coordination.checkpoint import Entry
from rota.coordination.group_state import GroupState
from rota.coordination.publication import Publication, Published, Term, publish
from rota.coordination.records import Own, Slot, Slots, decode, encode
from rota.coordination.store import Check, Node, Op, Set, Store
from rota.coordination.views import Read
from rota.core.reconcile import Event, Instruction, Observed, State, assigned
from rota.errors import Conflict, Unknown
from simulator.memory_store import MemoryStore

Change = Callable[[Op, Sequence[Op]], Op | None]
"""An operation of a multi, and all of them -> what is sent in its place; None: nothing."""
AnyStore = TypeVar("AnyStore", bound=Store)


def change_store(store: AnyStore, *changes: Change) -> AnyStore:
    """The same store; what it sends from now on goes through the changes first."""
    send = store.multi

    def multi(ops: Sequence[Op]) -> tuple[Node | None, ...]:
        sent = {}
        for place, op in enumerate(ops):
            left: Op | None = op
            for change in changes:
                left = change(left, ops) if left is not None else None
            if left is not None:
                sent[place] = left
        places = list(sent)
        try:
            answers = dict(zip(places, send(list(sent.values())), strict=True)) if sent else {}
        except Conflict as lost:
            raise Conflict(str(lost), path=lost.path, index=places[lost.index], cause=lost.cause) from None
        return tuple(answers.get(place) for place in range(len(ops)))

    store.multi = multi  # type: ignore[method-assign]
    return store


def make_changer(*changes: Change) -> Callable[[MemoryStore], object]:
    """What becomes of the store of each actor of a simulated world."""
    return lambda store: change_store(store, *changes)


def among(path: str, folder: str) -> bool:
    """Whether the node is one of the group's folder."""
    return path.split("/")[3:4] == [folder]


def drop_checks(*folders: str) -> Change:
    """No check of a node in these folders of the group."""
    return lambda op, _: None if isinstance(op, Check) and any(among(op.path, f) for f in folders) else op


def any_version(*folders: str) -> Change:
    """What is written in these folders is written over any version."""
    return lambda op, _: (
        replace(op, version=-1) if isinstance(op, Set) and any(among(op.path, f) for f in folders) else op
    )


def where(change: Change, applies: Callable[[Sequence[Op]], bool]) -> Change:
    """The change, in the multis that it applies to."""
    return lambda op, ops: change(op, ops) if applies(ops) else op


def releases(ops: Sequence[Op]) -> bool:
    """Whether the multi sets partitions free."""
    free = encode(Own())
    return any(isinstance(op, Set) and among(op.path, "own") and op.data == free for op in ops)


def writes(folder: str) -> Callable[[Sequence[Op]], bool]:
    """Whether the multi writes into the folder."""
    return lambda ops: any(not isinstance(op, Check) and among(op.path, folder) for op in ops)


# --- ownership

NO_LIVE = drop_checks("live")
NO_VERSION = any_version("own")
NO_TARGET = where(drop_checks("assign"), lambda ops: not releases(ops))
NO_DROPPED = where(drop_checks("assign"), releases)


def drop_resolving(store: Store) -> Store:
    """The same store; a reply that was lost is taken for a refusal."""
    send = store.multi

    def multi(ops: Sequence[Op]) -> tuple[Node | None, ...]:
        try:
            return send(ops)
        except Unknown:
            store.wait_active(20)
            raise Conflict("lost", path=ops[-1].path, index=len(ops) - 1, cause="version") from None

    store.multi = multi  # type: ignore[method-assign]
    return store


# --- checkpoints

NO_OWNER = where(drop_checks("own"), writes("checkpoints"))
NO_RUN = where(drop_checks("runs"), writes("checkpoints"))


def lock_instead(op: Op, ops: Sequence[Op]) -> Op:
    """Checks the version of an ephemeral lock in place of the own record's, as others do it."""
    if not (isinstance(op, Check) and among(op.path, "own") and writes("checkpoints")(ops)):
        return op
    return Check(op.path.replace("/own/", "/lock/"), 0)


@dataclass(frozen=True, slots=True)
class Blind(Entry):
    """A checkpoint that is written whatever the node has."""

    @property
    def backwards(self) -> bool:
        return False


# --- publication

NO_CONTROL: tuple[Change, ...] = (drop_checks("controller"), any_version("controller", "head"))


def new_slot_only(op: Op, _: Sequence[Op]) -> Op:
    """Leaves nothing of the effective set beside the new one."""
    if not (isinstance(op, Set) and among(op.path, "assign")):
        return op
    return replace(op, data=encode(Slots(slots=decode(op.path, Slots, op.data).slots[-1:])))


class Careless(GroupState):
    """A publisher's tree that hides the slots of a dead publisher at the first read, and, where it does not `verify`,
    shows the plan at the second."""

    def __init__(self, store: Store, group: str, plan: Publication, *, verify: bool) -> None:
        super().__init__(store, group)
        self.plan, self.verify, self.reads = plan, verify, 0

    def assigns(self) -> dict[str, Read[Slots]]:
        self.reads += 1
        found, head = super().assigns(), self.head().record.epoch
        if self.reads == 1:
            kept = {w: tuple(s for s in read.record.slots if s.epoch <= head) for w, read in found.items()}
            return {w: Read(Slots(slots=slots), found[w].node) for w, slots in kept.items()}
        if self.verify:
            return found
        wanted = {w: self.plan.targets.get(w, frozenset()) for w in found}
        return {w: Read(Slots(slots=(Slot(epoch=1, partitions=ids),)), found[w].node) for w, ids in wanted.items()}


def publish_carelessly(tree: GroupState, term: Term, publication: Publication, *, verify: bool = False) -> Published:
    """Neither rewrites what a dead publisher left nor, without `verify`, reads back what it wrote."""
    return publish(Careless(tree.store, tree.group, publication, verify=verify), term, publication)


# --- the reconcile machine


def change_looks(**changes: object) -> Callable[[State, Event], tuple[State, tuple[Instruction, ...]]]:
    """The machine, whose observations have these changes."""

    def machine(state: State, event: Event) -> tuple[State, tuple[Instruction, ...]]:
        seen = replace(event, **changes) if isinstance(event, Observed) else event  # type: ignore[arg-type]
        return assigned(state, seen)

    return machine


NO_DRAIN = change_looks(busy=frozenset())
NO_CAP = change_looks(cap=None)
NO_NEWEST = change_looks(newest=None)


def no_wait(state: State, event: Event) -> tuple[State, tuple[Instruction, ...]]:
    """The machine, for which every wait is over."""
    state, instructions = assigned(state, event)
    return replace(state, waiting={p: replace(w, since=-inf) for p, w in state.waiting.items()}), instructions


def no_proof(state: State, event: Event) -> tuple[State, tuple[Instruction, ...]]:
    """The machine, which forgets that it was suspended."""
    return assigned(replace(state, suspended=None), event)
