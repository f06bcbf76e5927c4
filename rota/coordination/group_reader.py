"""A group's records, read with their versions.

Laws:
1. An unreadable record is never taken for a missing or an empty one. Reading one record raises Undecodable. Reading
   many leaves it out and names it in `unreadable`. Only an operator replaces it (`repair.py`).
2. A target is read between two equal heads. A worker without an effective slot has no target (None), not an empty one.
3. Own records are read before live nodes (`owned`, then `live`): in the other order, a worker that joined and claimed
   in between would look dead.
4. Each read of the settings checks the level of the group: see `levels.py`.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import TypeVar

from rota.coordination.layout import ROOT, Paths
from rota.coordination.levels import check_level, find_levels
from rota.coordination.records import (
    Checkpoint,
    Controller,
    Epoch,
    GroupOverrides,
    Head,
    Live,
    Meta,
    Own,
    Parked,
    Partitions,
    Record,
    Refusals,
    RunNode,
    Slots,
    WorkerOverrides,
    decode,
)
from rota.coordination.store import Node, Store
from rota.coordination.views import LiveView, OwnView, Read, RunView, Target, target_of
from rota.errors import Conflict, NoGroup, Undecodable
from rota.ids import (
    LIVENESS_SUFFIX,
    is_id,
    is_incarnation,
    is_partition,
    is_run,
    parse_incarnation,
    parse_run,
    partition_id,
)

R = TypeVar("R", bound=Record)
EQUAL_HEADS = 20  # reads between two equal heads, before their Conflict is the caller's


def groups(store: Store) -> tuple[str, ...]:
    """Every group that was founded in this ZooKeeper."""
    names = [n for n in store.children(ROOT) if is_id(n) and n != "clock"]
    found = store.get_many([Paths(n).meta for n in names])
    return tuple(n for n, node in zip(names, found, strict=True) if node is not None)


class GroupReader:
    """The records of one group over one store; see the laws of the module. `unreadable` maps paths to what is wrong."""

    def __init__(self, store: Store, group: str) -> None:
        self.store, self.group, self.paths = store, group, Paths(group)
        self.levels = find_levels()  # of this process
        self.unreadable: dict[str, str] = {}
        self._known: dict[str, tuple[Node, Record]] = {}  # packed records as they were decoded last

    # --- settings

    def exists(self) -> bool:
        """Whether the group was founded. Raises ConfigError if this build does not read and write its level."""
        try:
            return self.read(self.paths.meta, Meta) is not None
        except Undecodable:
            return True

    def meta(self) -> Meta:
        """The group's settings. Raises NoGroup if it was never founded; ConfigError as `exists`."""
        return self.settings().record

    def settings(self) -> Read[Meta]:
        """The group's settings, with their version. Raises as `meta`."""
        return self._needed(self.paths.meta, Meta)

    def _missing(self) -> NoGroup:
        return NoGroup(
            f"Group {self.group!r} is not in this ZooKeeper. Its membership sensor founds it; or check ROTA_ZOOKEEPER"
        )

    # --- single records

    def read(self, path: str, model: type[R]) -> Read[R] | None:
        """The record at `path`, or None if there is no such node. Raises Undecodable."""
        node = self.store.get(path)
        if node is None:
            self.unreadable.pop(path, None)
            return None
        record = self._decode(path, model, node)
        if isinstance(record, Undecodable):
            raise record
        return Read(record, node)

    def read_many(self, paths: Sequence[str], model: type[R]) -> dict[str, Read[R]]:
        """Path -> record for each that is there and readable; the others are in `unreadable`."""
        found: dict[str, Read[R]] = {}
        for path, node in zip(paths, self.store.get_many(paths), strict=True):
            if node is None:
                self.unreadable.pop(path, None)
            elif not isinstance(record := self._decode(path, model, node), Undecodable):
                found[path] = Read(record, node)
        return found

    def _decode(self, path: str, model: type[R], node: Node) -> R | Undecodable:
        known = self._known.get(path)
        if known is not None and known[0] == node and isinstance(known[1], model):
            return known[1]
        try:
            record = decode(path, model, node.data)
        except Undecodable as error:
            self.unreadable[path] = str(error)
            return error
        self.unreadable.pop(path, None)
        if isinstance(record, Meta):
            check_level(self.group, record, self.levels)
        if model.packed:
            self._known[path] = node, record
        return record

    def controller(self) -> Read[Controller]:
        """The controller's record: which process may publish."""
        return self._needed(self.paths.controller, Controller)

    def head(self) -> Read[Head]:
        """The current epoch."""
        return self._needed(self.paths.head, Head)

    def _needed(self, path: str, model: type[R]) -> Read[R]:
        seen = self.read(path, model)
        if seen is None:
            raise self._missing()
        return seen

    # --- folders

    def live(self) -> tuple[LiveView, ...]:
        """Every live incarnation, by name. Read own records before, never after."""
        names = self._ids(self.paths.lives, is_incarnation)
        paths = [self.paths.live(n) for n in names]
        views: list[LiveView] = []
        for name, path, node in zip(names, paths, self.store.get_many(paths), strict=True):
            if node is not None:
                record = self._decode(path, Live, node)
                worker, session = parse_incarnation(name)
                announced = None if isinstance(record, Undecodable) else record
                views.append(LiveView(name, worker, session, node.czxid, announced))
        return tuple(views)

    def newest(self, live: Iterable[LiveView]) -> dict[str, LiveView]:
        """Maps each worker to its newest incarnation by czxid: the one that counts."""
        chosen: dict[str, LiveView] = {}
        for view in live:
            if view.worker not in chosen or chosen[view.worker].czxid < view.czxid:
                chosen[view.worker] = view
        return chosen

    def owned(self, partitions: Iterable[str] | None = None) -> dict[str, OwnView]:
        """Maps each partition, of the given ones or all, to its own record. A missing or unreadable one has no entry."""
        names = list(partitions) if partitions is not None else self._ids(self.paths.owns, is_partition)
        base = self.meta().token_base
        paths = [self.paths.own(n) for n in names]
        reads = self.read_many(paths, Own)
        views = zip(names, map(reads.get, paths), strict=True)
        return {
            n: OwnView(r.record.incarnation, r.version, base + r.node.mzxid, r.node.mtime / 1000)
            for n, r in views
            if r is not None
        }

    def target(self, worker: str) -> Target | None:
        """The target of `worker` now. None: it is unknown, and nothing is concluded from that.

        Raises Undecodable if its slots cannot be read.
        """
        for _ in range(EQUAL_HEADS):
            path = self.paths.assign(worker)
            before, assign, after = self.store.get_many((self.paths.head, path, self.paths.head))
            if before is None or after is None:
                raise self._missing()
            if assign is None:
                return None
            if before.version != after.version:
                continue
            slots, head = self._decode(path, Slots, assign), self._decode(self.paths.head, Head, after)
            for record in (slots, head):
                if isinstance(record, Undecodable):
                    raise record
            assert isinstance(slots, Slots)
            assert isinstance(head, Head)
            if (target := target_of(slots, head.epoch, assign)) is not None:
                return target
        return None

    def targets(self) -> tuple[Read[Head], dict[str, Target]]:
        """The head and every worker's target under it. A worker without an effective or readable slot has no entry."""
        for _ in range(EQUAL_HEADS):
            before = self.head()
            found = self.assigns()
            if self.head().version == before.version:
                epoch = before.record.epoch
                views = {w: target_of(r.record, epoch, r.node) for w, r in found.items()}
                return before, {w: t for w, t in views.items() if t is not None}
        raise Conflict("The head moved at each look. Look again", path=self.paths.head, index=0, cause="version")

    def assigns(self) -> dict[str, Read[Slots]]:
        """Maps each worker to its two slots, effective or not."""
        paths = {w: self.paths.assign(w) for w in self._ids(self.paths.assigns)}
        reads = self.read_many(tuple(paths.values()), Slots)
        return {w: reads[p] for w, p in paths.items() if p in reads}

    def checkpoints(self, partitions: Iterable[str] | None = None) -> dict[str, Read[Checkpoint]]:
        """Partition -> its checkpoint, for those given or all."""
        names = list(partitions) if partitions is not None else self._ids(self.paths.checkpoints, is_partition)
        paths = [self.paths.checkpoint(n) for n in names]
        reads = self.read_many(paths, Checkpoint)
        return {n: reads[p] for n, p in zip(names, paths, strict=True) if p in reads}

    def working(self) -> dict[str, str]:
        """Maps the node of each live consuming run to the incarnation that it works for."""
        return {n: parse_run(n)[0] for n in self._ids(self.paths.runs, is_run)}

    def live_runs(self) -> frozenset[str]:
        """The ids of live runs, with or without a batch: each has a node for the time of its session."""
        names = self.store.children(self.paths.runs)
        return frozenset(n.rpartition("@")[0] for n in names if n.endswith(LIVENESS_SUFFIX))

    def runs(self, of: Container[str] | None = None) -> tuple[RunView, ...]:
        """The live consuming runs, of these incarnations or all. Nodes of others are not read.

        An unreadable node is in `unreadable`.
        """
        names = [name for name, incarnation in self.working().items() if of is None or incarnation in of]
        reads = self.read_many([f"{self.paths.runs}/{n}" for n in names], RunNode)
        views: list[RunView] = []
        for name in names:
            if (seen := reads.get(f"{self.paths.runs}/{name}")) is not None:
                incarnation, run_id, session = parse_run(name)
                node, partitions = seen.node, seen.record.partitions
                views.append(RunView(name, run_id, session, incarnation, partitions, node.czxid, node.mtime / 1000))
        return tuple(views)

    def parked(self) -> dict[str, Read[Parked]]:
        """Partition -> why it is parked."""
        return self._folder(self.paths.parked, Parked, is_partition)

    def worker_overrides(self) -> dict[str, Read[WorkerOverrides]]:
        """Maps each worker to its overrides by operators."""
        return self._folder(self.paths.workers, WorkerOverrides)

    def overrides(self) -> GroupOverrides:
        """The overrides of the group by operators."""
        return self._needed(self.paths.overrides, GroupOverrides).record

    def partitions(self) -> dict[str, Partitions]:
        """Maps each pipeline to its keys. Raises Undecodable: an unreadable pipeline must not look like one without
        keys.
        """
        return {pipeline: read.record for pipeline, read in self.pipelines().items()}

    def ids(self) -> dict[str, str]:
        """Maps each partition id that the group knows to its pipeline."""
        return {partition_id(name, key): name for name, record in self.partitions().items() for key in record.keys}

    def pipelines(self) -> dict[str, Read[Partitions]]:
        """Maps each pipeline to its keys, with their versions. Keys are unpacked only if they changed since the last
        read.
        """
        names = self._ids(self.paths.partitions)
        paths = {name: self.paths.pipeline(name) for name in names}
        found: dict[str, Read[Partitions]] = {}
        for (name, path), node in zip(paths.items(), self.store.get_many(tuple(paths.values())), strict=True):
            if node is not None:
                record = self._decode(path, Partitions, node)
                if isinstance(record, Undecodable):
                    raise record
                found[name] = Read(record, node)
        return found

    def epochs(self, last: int = 200) -> tuple[Epoch, ...]:
        """The audit of the last publications, oldest first."""
        names = self._ids(self.paths.epochs, str.isdigit)[-last:]
        reads = self.read_many([f"{self.paths.epochs}/{n}" for n in names], Epoch)
        return tuple(r.record for r in reads.values())

    def refusals(self) -> Refusals:
        """The last refused writes."""
        return self._needed(self.paths.refused, Refusals).record

    def find_torn(self, folder: str) -> set[str]:
        """The names of the records in the folder that could not be read."""
        return {path.rpartition("/")[2] for path in self.unreadable if path.startswith(f"{folder}/")}

    def _folder(self, folder: str, model: type[R], known: Callable[[str], bool] = is_id) -> dict[str, Read[R]]:
        reads = self.read_many([f"{folder}/{n}" for n in self._ids(folder, known)], model)
        return {path.rpartition("/")[2]: read for path, read in reads.items()}

    def _ids(self, folder: str, known: Callable[[str], bool] = is_id) -> list[str]:
        names = self.store.children(folder)
        self._forget(folder, names)
        return [n for n in names if known(n)]

    def _forget(self, folder: str, there: Sequence[str]) -> None:
        """Drops cached records that no longer exist in the folder."""
        for kept in (self._known, self.unreadable):
            if mine := {path for path in kept if path.startswith(f"{folder}/")}:
                for path in mine.difference(f"{folder}/{name}" for name in there):
                    kept.pop(path)
