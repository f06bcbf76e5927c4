"""What the workers of a measured group asked ZooKeeper for, and who owned which partition when.

Law: it looks at what is sent and answered, and takes part in nothing. A write that was refused is no change.
"""

import json
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from rota.coordination.store import Check, Create, Node, Op, Set, Store
from rota.ids import worker_of


@dataclass(frozen=True, slots=True)
class Change:
    """A partition was claimed by an incarnation, or released by its owner (None)."""

    at: float
    partition: str
    owner: str | None

    @property
    def worker(self) -> str | None:
        """The worker that owns it from then on."""
        return worker_of(self.owner) if self.owner else None


@dataclass
class Tally:
    """Counts the calls of every store that it is attached to, and notes each own record that was written. `clock` says when;
    reads and writes count only while it is `counting`."""

    clock: Callable[[], float]
    counting: bool = True
    reads: int = 0
    writes: int = 0
    changes: list[Change] = field(default_factory=list)
    claimed: Callable[[Change, str | None], None] = lambda *_: (
        None
    )  # is told of each claim, and whose it was until then
    owners: dict[str, str | None] = field(default_factory=dict)  # partition -> the incarnation that owns it
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def attach(self, store: Store) -> None:
        """From now on this client is looked at."""
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
            self._note([op for op in ops if isinstance(op, Create | Set) and "/own/" in op.path])
            return answer

        store.get_many, store.children, store.multi = get_seen, children_seen, multi_seen  # type: ignore[method-assign]

    def _count(self, reads: int = 0, writes: int = 0) -> None:
        with self._lock:
            if self.counting:
                self.reads += reads
                self.writes += writes

    def _note(self, written: Iterable[Create | Set]) -> None:
        now = self.clock()
        for op in written:
            change = Change(now, op.path.rpartition("/")[2], json.loads(op.data)["incarnation"])
            with self._lock:
                self.changes.append(change)
                before, self.owners[change.partition] = self.owners.get(change.partition), change.owner
            if change.owner is not None:
                self.claimed(change, before)

    def find_last(self, start: float, stop: float) -> float:
        """When a partition changed hands last between the two; `start` if none did."""
        return max((c.at for c in tuple(self.changes) if start <= c.at < stop), default=start)


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
    for change in sorted(changes, key=lambda c: c.at):
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
