"""Publishes a target: two slots for each worker, and one write of the head that makes the new epoch current.

Laws:
1. At every instant, and wherever a publisher dies, each partition is in at most one worker's effective set, and the
   sets together are exactly one published assignment. A reader never sees an empty set that was not published.
2. Only the last process that took control can write: every write checks the controller's version.
3. An epoch is never used twice: the next one is above the head and above every existing slot.
4. It costs one write for each changed worker and one multi for the head, the controller's memory and the audit,
   whatever the number of partitions. A round that changes no target writes no epoch; it only records its basis.
5. A publisher that stops between two writes leaves nothing that the next publication does not clean up.
6. The target of a gone worker is removed once it is empty: worker ids are often host names that never return. A live
   worker keeps its node: the version that a claim checks never restarts.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from rota.coordination.group_state import COMPARES, GroupState
from rota.coordination.id_set import MAX_IDS
from rota.coordination.inputs import KEY
from rota.coordination.levels import with_build
from rota.coordination.records import (
    MAX_MOVES,
    Controller,
    Epoch,
    Head,
    Moved,
    Own,
    Slot,
    Slots,
    encode,
)
from rota.coordination.store import RECONNECTING, Check, Create, Delete, Op, Set, settle, written
from rota.coordination.views import Read
from rota.core import Move, Plan
from rota.errors import AssignmentError, Conflict, CoordinationError, Unknown
from rota.ids import worker_of
from rota.portions import take_portions

if TYPE_CHECKING:
    from rota.coordination.snapshot import GroupSnapshot

KEEP_EPOCHS = 200
CHUNK_OPS, CHUNK_BYTES = 400, 750_000


@dataclass(frozen=True, slots=True)
class Term:
    """The right to publish. It is lost as soon as another process takes control. `before` is the controller's record."""

    number: int
    version: int
    before: Controller = field(default_factory=Controller, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Audit:
    """Why an epoch is published. `sentence` does not contain the epoch's number, which is put before it."""

    sentence: str = ""
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    moves: Iterable[Move] = ()
    measures: Mapping[str, float | int | str | None] = field(default_factory=dict)
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class Publication:
    """The next assignment (worker -> partitions; other workers get none), its basis, and the audit.

    `observed`: the owners before, if the workers decided alone and no controller published. Then only the audit and the
    head with its basis are written; the workers write their own targets. `claimed` then maps each partition that moved
    to the time of its claim, in server seconds.
    """

    targets: Mapping[str, frozenset[str]]
    basis: str = ""
    due: float | None = None
    memory: Mapping[str, object] = field(default_factory=dict)
    absences: Mapping[str, float] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    audit: Audit = Audit()
    observed: Mapping[str, int] | None = None
    claimed: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        total = sum(len(ids) for ids in self.targets.values())
        if total > MAX_IDS:
            raise AssignmentError(f"{total} partitions are above {MAX_IDS} in one group. Put some into another group")
        if len(frozenset().union(*self.targets.values())) != total:
            raise AssignmentError(
                "A partition is in two targets. The assignor that proposed it is wrong; choose another"
            )


def publication_of(
    read: "GroupSnapshot",
    plan: Plan,
    sentence: str = "",
    run_id: str = "",
    measures: Mapping[str, float | None] = MappingProxyType({}),
) -> Publication:
    """The publication of a plan made from an observation. `measures` are reported in addition to those of the plan."""
    return Publication(
        targets={w: frozenset(ids) for w, ids in plan.assignment.as_dict().items()},
        basis=read.basis.digest,
        due=plan.due,
        memory={**plan.memory, KEY: read.basis.inputs},
        absences=read.absences,
        members=read.basis.members,
        audit=Audit(
            sentence, read.basis.joined, read.basis.left, plan.moves, asdict(plan.measures) | dict(measures), run_id
        ),
    )


@dataclass(frozen=True, slots=True)
class Published:
    """The current epoch. `published` is false if no target changed. Continue with `term`."""

    epoch: int
    published: bool
    term: Term
    changed: tuple[str, ...]


def take_control(tree: GroupState) -> Term:
    """Takes the right to publish from its present holder. Raises Conflict only if other processes keep taking it."""
    tree.store.wait_active(RECONNECTING)
    for attempt in range(COMPARES):
        seen = tree.controller()
        mine = with_build(seen.record.model_copy(update={"term": seen.record.term + 1}), tree.levels)
        try:
            return Term(mine.term, tree.store.set(tree.paths.controller, encode(mine), seen.version).version, mine)
        except (Conflict, Unknown):
            if attempt == COMPARES - 1:
                raise
            settle(tree.store)
    raise AssertionError("not reached")


def publish(tree: GroupState, term: Term, publication: Publication) -> Published:
    """Makes the publication current. Raises Conflict if another process took control: then nothing of it is current.

    A lost reply is resolved by reading back. If the write was not applied, all of it is done again.
    """
    tree.store.wait_active(RECONNECTING)
    for _ in range(COMPARES):
        attempt = _Attempt(tree, term, publication)
        try:
            return attempt.run()
        except Unknown:
            settle(tree.store)
            if attempt.applied():
                return attempt.published(replace(term, version=term.version + 1))
            term = attempt.renewed()
    raise Unknown(f"The replies of {COMPARES} attempts to publish were lost. Try again when ZooKeeper answers")


class _Attempt:
    """One attempt: reads the current slots, writes those that differ, sets the head."""

    def __init__(self, tree: GroupState, term: Term, publication: Publication) -> None:
        self.tree, self.term, self.publication = tree, term, publication
        self.head = tree.head()
        self.nodes = self._read()
        self.epoch = 1 + max([self.head.record.epoch, *(s.record.newest for s in self.nodes.values() if s)])
        alone = publication.observed is not None
        self.changed = (
            () if alone else tuple(w for w in sorted({*self.nodes, *publication.targets}) if self._is_changed(w))
        )

    def _read(self) -> dict[str, Read[Slots] | None]:
        """Maps each worker to its present slots; None: they exist, but are unreadable."""
        found: dict[str, Read[Slots] | None] = dict(self.tree.assigns())
        return found | dict.fromkeys(sorted(self.tree.find_torn(self.tree.paths.assigns)))

    def _is_changed(self, worker: str) -> bool:
        wanted = self.publication.targets.get(worker, frozenset())
        if worker not in self.nodes:
            return bool(wanted)
        read = self.nodes[worker]
        if read is None or read.record.newest > self.head.record.epoch:
            return True
        effective = read.record.effective(self.head.record.epoch)
        return effective is None or effective.partitions != wanted

    def run(self) -> Published:
        """All the writes, in order."""
        self._write(self._left())
        moved = self.publication.observed is not None and any(True for _ in self.publication.audit.moves)
        if not self.changed and not moved:
            return self._settled()
        if not moved:
            self._write(self._new_own_records())
            self._write(self._new_slots())
            self._verify()
        term = self._flip([self._audit()], self.epoch)
        self._trim()
        return self.published(term)

    def published(self, term: Term) -> Published:
        """The result once the head is written."""
        return Published(self.epoch, True, term, self.changed)

    def applied(self) -> bool:
        """After a lost reply: whether this attempt's write of the head was applied. Its audit shows this, whatever
        followed.
        """
        seen = self.tree.read(self.tree.paths.epoch(self.epoch), Epoch)
        return seen is not None and seen.record.term == self.term.number

    def renewed(self) -> Term:
        """After a lost reply: the current term, unless another process took control."""
        controller = self.tree.controller()
        if controller.record.term != self.term.number:
            raise Conflict(
                "Another controller took over. Look again, then decide",
                path=self.tree.paths.controller,
                index=0,
                cause="version",
            )
        return Term(self.term.number, controller.version, controller.record)

    def _settled(self) -> Published:
        """No target changed: the head only records the basis of the decision."""
        before = self.head.record
        term = self.term
        if self._controller() != self.tree.controller().record or self._head(before.epoch) != before:
            term = self._flip([], before.epoch)
        return Published(before.epoch, False, term, ())

    def _check(self) -> list[Op]:
        return [Check(self.tree.paths.controller, self.term.version)]

    def _new_own_records(self) -> Iterator[Op]:
        """A free own record for each partition that is named for the first time."""
        there = set(self.tree.store.children(self.tree.paths.owns))
        free = encode(Own())
        for partition in sorted(frozenset().union(*self.publication.targets.values()) - there):
            yield Create(self.tree.paths.own(partition), free)

    def _new_slots(self) -> Iterator[Op]:
        """The new set beside the effective one, for each changed worker."""
        for worker in self.changed:
            path, read = self.tree.paths.assign(worker), self.nodes.get(worker)
            wanted = Slot(epoch=self.epoch, partitions=self.publication.targets.get(worker, frozenset()))
            if worker not in self.nodes:
                yield Create(path, encode(Slots(slots=(wanted,))))
            elif read is None:
                node = self.tree.store.get(path)
                data = encode(Slots(slots=(wanted,)))
                yield Create(path, data) if node is None else Set(path, data, node.version)
            else:
                effective = read.record.effective(self.head.record.epoch)
                slots = (wanted,) if effective is None else (effective, wanted)
                yield Set(path, encode(Slots(slots=slots).carry(read.record)), read.version)

    def _left(self) -> Iterator[Op]:
        """The targets that are no longer needed: empty before and after this publication, and their workers gone."""
        head, here = self.head.record.epoch, {worker_of(incarnation) for incarnation in self.publication.members}
        for worker, read in self.nodes.items():
            if worker in here or worker in self.changed or read is None:
                continue
            if self.publication.targets.get(worker) and self.publication.observed is None:
                continue
            if read.record.newest <= head:
                yield Delete(self.tree.paths.assign(worker), read.version)

    def _write(self, ops: Iterable[Op]) -> None:
        """In as few multis as fit, each with the controller's check."""

        def measure(op: Op) -> int:
            return len(op.path) + (len(op.data) if isinstance(op, Create | Set) else 0)

        for chunk in take_portions(ops, CHUNK_BYTES, measure, CHUNK_OPS):
            self.tree.store.multi([*self._check(), *chunk])

    def _verify(self) -> None:
        """Checks that the effective sets after the write of the head equal the plan and are disjoint."""
        would = {w: r.record.effective(self.epoch) for w, r in self.tree.assigns().items()}
        found = {w: s.partitions for w, s in would.items() if s is not None and s.partitions}
        wanted = {w: ids for w, ids in self.publication.targets.items() if ids}
        if found != wanted:
            wrong = sorted(w for w in {*found, *wanted} if found.get(w) != wanted.get(w))
            raise AssignmentError(
                f"What epoch {self.epoch} would make current is not the plan, at {', '.join(wrong[:5])}. Nothing changed; "
                f"run the rebalance again"
            )

    def _controller(self) -> Controller:
        record = Controller(
            term=self.term.number,
            absences=dict(self.publication.absences),
            memory=dict(self.publication.memory),  # type: ignore[arg-type]
            members=tuple(sorted(self.publication.members)),
        )
        return with_build(record, self.tree.levels).carry(self.term.before)

    def _head(self, epoch: int) -> Head:
        return Head(epoch=epoch, basis=self.publication.basis, due=self.publication.due).carry(self.head.record)

    def _flip(self, more: list[Op], epoch: int) -> Term:
        ops = [
            Set(self.tree.paths.controller, encode(self._controller()), self.term.version),
            Set(self.tree.paths.head, encode(self._head(epoch)), self.head.version),
            *more,
        ]
        node = self.tree.store.multi(ops)[0]
        return replace(self.term, version=written(node).version)

    def _audit(self) -> Op:
        audit = self.publication.audit
        moves = list(audit.moves)
        record = Epoch(
            epoch=self.epoch,
            at=self.tree.store.now(),
            sentence=f"Epoch {self.epoch}: {audit.sentence}"[:2000],
            joined=audit.joined,
            left=audit.left,
            moves=tuple(
                Moved(
                    partition=m.partition,
                    from_worker=m.from_worker,
                    to_worker=m.to_worker,
                    reason=m.reason[:300],
                    at=self.publication.claimed.get(m.partition),
                )
                for m in moves[:MAX_MOVES]
            ),
            moved=len(moves),
            before=self._counts(),
            after={w: len(ids) for w, ids in self.publication.targets.items()},
            measures=dict(audit.measures),
            dropped=self._dropped(),
            run_id=audit.run_id,
            term=self.term.number,
        )
        return Create(self.tree.paths.epoch(self.epoch), encode(record))

    def _counts(self) -> dict[str, int]:
        if self.publication.observed is not None:
            return dict(self.publication.observed)
        return {worker: len(partitions) for worker, partitions in self._effective().items()}

    def _effective(self) -> dict[str, frozenset[str]]:
        """Worker -> the partitions of its target before the flip."""
        head = self.head.record.epoch
        slots = {w: r.record.effective(head) for w, r in self.nodes.items() if r is not None}
        return {w: s.partitions for w, s in slots.items() if s is not None and s.partitions}

    def _dropped(self) -> tuple[str, ...]:
        if self.publication.observed is not None:
            return ()  # the workers write their own targets
        before, after = self._effective().values(), self.publication.targets.values()
        return tuple(sorted(frozenset().union(*before) - frozenset().union(*after))[:MAX_MOVES])

    def _trim(self) -> None:
        """Best effort: what is not trimmed now is trimmed next time."""
        with suppress(CoordinationError):
            names = [n for n in self.tree.store.children(self.tree.paths.epochs) if n.isdigit()]
            if old := names[:-KEEP_EPOCHS][:CHUNK_OPS]:
                self.tree.store.multi([Delete(f"{self.tree.paths.epochs}/{n}") for n in old])
