"""Counts the requests of a measured group to ZooKeeper, and records which worker owned which partition when.

Law: it only observes requests and answers. A refused write is no change. If several threads write, the first write may be
reported last: the version of the record gives the order.
"""

import json
import math
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from rota.coordination.store import Check, Create, Node, Op, Set, Store
from rota.ids import worker_of


@dataclass(frozen=True, slots=True)
class Change:
    """A partition was claimed by an incarnation, or released by its owner (None): the own record's `version` since."""

    at: float
    partition: str
    owner: str | None
    version: int

    @property
    def worker(self) -> str | None:
        """The worker that owns it from then on."""
        return worker_of(self.owner) if self.owner else None


@dataclass
class Tally:
    """Counts the calls of attached stores, and notes each own record that was written. `clock` gives the time;
    reads and writes count only while it is `counting`."""

    clock: Callable[[], float]
    counting: bool = True
    reads: int = 0
    writes: int = 0
    changes: list[Change] = field(default_factory=list)
    # is called with each change, and with its owner until then
    heard: Callable[[Change, str | None], None] = lambda *_: None
    newest: dict[str, Change] = field(default_factory=dict)  # by partition
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def attach(self, store: Store) -> None:
        """Observe this client from now on."""
        get_many, children, multi = store.get_many, store.children, store.multi

        def get_seen(paths: Sequence[str]) -> tuple[Node | None, ...]:
            self._count(reads=len(paths))
            return get_many(paths)

        def children_seen(path: str) -> tuple[str, ...]:
            self._count(reads=1)
            return children(path)

        def multi_seen(ops: Sequence[Op]) -> tuple[Node | None, ...]:
            self._count(writes=sum(1 for op in ops if not isinstance(op, Check)))
            answer = multi(ops)
            self._note(
                (op, node) for op, node in zip(ops, answer, strict=True) if isinstance(op, Create | Set) and node
            )
            return answer

        store.get_many, store.children, store.multi = get_seen, children_seen, multi_seen  # type: ignore[method-assign]

    def _count(self, reads: int = 0, writes: int = 0) -> None:
        with self._lock:
            if self.counting:
                self.reads += reads
                self.writes += writes

    def _note(self, written: Iterable[tuple[Create | Set, Node]]) -> None:
        now = self.clock()
        for op, node in written:
            folder, _, partition = op.path.rpartition("/")
            if not folder.endswith("/own"):
                continue
            change = Change(now, partition, json.loads(op.data)["incarnation"], node.version)
            with self._lock:
                self.changes.append(change)
                before = self.newest.get(partition)
                if before is None or before.version < change.version:
                    self.newest[partition] = change
            self.heard(change, before.owner if before else None)

    def find_last(self, start: float, stop: float) -> float:
        """Return the time of the last change of owner between the two; `start` if there was none."""
        return max((c.at for c in tuple(self.changes) if start <= c.at < stop), default=start)


def arrange(changes: Iterable[Change]) -> list[Change]:
    """The changes in the order in which they happened; none is later than the one that followed it in its partition."""
    by_partition: dict[str, list[Change]] = {}
    for change in changes:
        by_partition.setdefault(change.partition, []).append(change)
    arranged: list[Change] = []
    for mine in by_partition.values():
        latest = math.inf
        for change in sorted(mine, key=lambda c: -c.version):
            latest = min(latest, change.at)
            arranged.append(replace(change, at=latest))
    return sorted(arranged, key=lambda c: (c.at, c.version))


def count_taken(changes: Iterable[Change], dead: Collection[str] = ()) -> int:
    """Count the claims of partitions that a live worker had not released. `dead`: workers that do not count as live."""
    owners: dict[str, Change] = {}
    taken = 0
    for change in arrange(changes):
        before = owners.get(change.partition)
        if before and before.worker and change.owner and before.owner != change.owner and before.worker not in dead:
            taken += 1
        owners[change.partition] = change
    return taken


@dataclass(frozen=True, slots=True)
class Phase:
    """What one happening led to: `seconds` until the last change of owner, partitions that another worker got, and
    partition-seconds without a living owner."""

    seconds: float
    moves: int
    unowned: float


def judge(
    changes: Sequence[Change], partitions: Collection[str], start: float, stop: float, dead: Collection[str] = ()
) -> Phase:
    """What happened from `start` to `stop`. The workers `dead` died at `start`: what they own has no living owner."""
    seconds, moves, unowned = 0.0, 0, 0.0
    by_partition: dict[str, list[Change]] = {p: [] for p in partitions}
    for change in arrange(changes):
        by_partition[change.partition].append(change)
    for mine in by_partition.values():
        at, owner, last = start, None, None
        for change in mine:
            if change.at >= stop:
                break
            if change.at >= start:
                seconds = max(seconds, change.at - start)
                unowned += 0.0 if owner and owner not in dead else change.at - at
                moves += change.worker is not None and last not in (None, change.worker)
                at = change.at
            owner, last = change.worker, change.worker or last
        unowned += 0.0 if owner and owner not in dead else stop - at
    return Phase(seconds, moves, unowned)
