"""A consuming run as section 6 of the design has it, as an actor: it yields before each thing that others can see.

It asks and writes in the order of `rota/rights.py` and `rota/consume.py`, which a test compares. Each guard can be taken
away; the checker counts what comes of it.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from rota.coordination import membership
from rota.coordination.checkpoint import Entry, write_checkpoints
from rota.coordination.ownership import Ownership
from rota.coordination.parking import park, unpark, waiting
from rota.coordination.records import Checkpoint, Parked
from rota.coordination.store import Check
from rota.coordination.tree import Read, Tree
from rota.errors import Conflict, CoordinationError, Unavailable, Unknown
from rota.rights import holds
from tests.sim.handover.table import Broken, Conflicted, File, Handle

if TYPE_CHECKING:
    from tests.sim.handover.world import World

Steps = Generator[float, None, None]
BACK_OFF = 2.0  # seconds before a partition that failed is tried again


@dataclass(frozen=True, slots=True)
class RunGuards:
    """What a run is careful about."""

    node_first: bool = True  # its /runs node exists before it reads anything
    own: bool = True  # it keeps only what its incarnation owns
    target: bool = True  # ... and what the target still says
    elder: bool = True  # ... and what no run of the same incarnation, there before it, works on
    token: bool = True  # it claims in the table, and its commit carries the token
    one_handle: bool = True  # offset read and commit made on one handle
    fresh_id: bool = True  # a commit id is made for each attempt, not for each run
    since: bool = True  # after a failure it looks for its commit from where it began, not further back
    told_first: bool = True  # a batch is told before its checkpoint is written
    own_at_checkpoint: bool = True  # the checkpoint's multi checks the own record
    own_at_park: bool = True  # it parks, and ends a park, only while its right to the partition stands


@dataclass(frozen=True, slots=True)
class Config:
    """What a launch is told; a retry is told the same."""

    run_id: str
    incarnation: str
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """What a run may work on, and what it read with it."""

    own: dict[str, Ownership]
    parked: Mapping[str, Parked]
    checkpoints: Mapping[str, Read[Checkpoint]]


def consume(world: "World", config: Config, tree: Tree, random: Random) -> Steps:
    """One run, as many partitions at a time as its node may name. Ends early where ZooKeeper or the table is away."""
    try:
        for start in range(0, len(config.partitions), world.max_run):
            named = config.partitions[start : start + world.max_run]
            yield from _Run(world, config, tree, random).portion(named)
    except (Unavailable, Unknown, Conflict, Broken):
        world.count("run-broken")


@dataclass(slots=True)
class _Run:
    world: "World"
    config: Config
    tree: Tree
    random: Random
    node: str = ""

    def portion(self, named: tuple[str, ...]) -> Steps:
        """From its node to its checkpoints."""
        try:
            if self.world.run_guards.node_first:
                yield from self._register(named)
            held, dropped = yield from self._rights(named)
            if dropped:
                with suppress(CoordinationError):
                    membership.narrow_run(self.tree, self.node, held.own)
                yield self.world.step()
            self.world.count("dropped", dropped)
            if held.own:
                yield from self._consumed(held)
        except (CoordinationError, Broken):
            self._end()
            raise
        yield self.world.step()
        self._end()

    def _register(self, named: tuple[str, ...]) -> Steps:
        self.node = membership.register_run(self.tree, self.config.run_id, self.config.incarnation, named)
        yield self.world.step()

    def _end(self) -> None:
        with suppress(CoordinationError):
            if self.node:
                membership.end_run(self.tree, self.node)

    def _rights(self, named: tuple[str, ...]) -> Generator[float, None, tuple[Held, int]]:
        """Step 1, a read at a time; and how many were dropped."""
        guards, tree, me = self.world.run_guards, self.tree, self.config.incarnation
        tree.store.sync()
        owned = tree.owned(named)
        yield self.world.step()
        view = tree.target(me.rpartition("@")[0])
        target = view.partitions if view else frozenset()
        yield self.world.step()
        if not guards.node_first:
            yield from self._register(named)
        live = {one.incarnation for one in tree.live()}
        yield self.world.step()
        elder = self._elder()
        yield self.world.step()
        parked = {p: one.record for p, one in tree.parked().items() if p in owned}
        now = tree.store.now() if parked else 0.0
        checkpoints = tree.checkpoints(owned)
        yield self.world.step()
        held = {
            p: Ownership(p, view.incarnation or "", view.version, view.token)
            for p, view in owned.items()
            if me in live
            and (view.incarnation == me or not guards.own)
            and (target is None or p in target or not guards.target)
            and (p not in elder or not guards.elder)
            and not (p in parked and waiting(parked[p], now))
        }
        return Held(held, parked, checkpoints), len(named) - len(held)

    def _elder(self) -> frozenset[str]:
        """What runs of the same incarnation that were there first work on."""
        runs = {r.name: r for r in self.tree.runs({self.config.incarnation})}
        mine = runs.get(self.node.rpartition("/")[2])
        elder = [r for r in runs.values() if mine and r.incarnation == mine.incarnation and r.czxid < mine.czxid]
        return frozenset(p for r in elder for p in r.partitions)

    # --- steps 2 to 6

    def _consumed(self, held: Held) -> Steps:
        yield from self._standing(held)
        fixed = {p: self.world.latest(p) for p in held.own}
        claimed = yield from self._claimed(held.own)
        if claimed is None:
            return
        handle, starts = claimed
        yield from self._healed(held, handle, starts)
        ends = {p: min(fixed[p], starts[p] + self.world.max_batch) for p in starts}
        work = {p: (starts[p], ends[p]) for p in starts if starts[p] < ends[p]}
        for p in starts:
            if p not in work and p in held.parked:
                yield from self._unpark(held, p)
        if not work:
            return
        yield self.random.uniform(0.1, self.world.longest_batch)  # Spark works
        if (bad := self.world.poison(tuple(work))) is not None:
            yield from self._park(held, bad, work.pop(bad)[0])
        if not self.world.run_guards.one_handle:
            handle = self.world.table.open()
        yield from self._published(held, work, handle)

    def _standing(self, held: Held) -> Steps:
        """What would tell of a restored ZooKeeper or table; nobody restored one here."""
        handle = self.world.table.open()
        yield self.world.step()
        for p, own in held.own.items():
            if (handle.transaction(f"{p}/token") or 0) > own.token:
                if holds(self.tree, own):
                    self.world.checker.blame("foreign", f"{p} seems to be of a restored ZooKeeper")
                yield self.world.step()
            was = held.checkpoints.get(p)
            if was is not None and was.record.offset > (handle.transaction(f"{p}/offset") or 0):
                self.world.checker.blame("restored", f"{p} seems to be of a restored table")

    def _claimed(self, own: dict[str, Ownership]) -> Generator[float, None, "tuple[Handle, dict[str, int]] | None"]:
        """A handle that shows every token its own, and the offsets on it. Who is fenced leaves `own`."""
        world = self.world
        while own:
            handle = world.table.open()
            yield world.step()
            tokens = {p: handle.transaction(f"{p}/token") for p in own}
            if not world.run_guards.token:
                tokens = {p: o.token for p, o in own.items()}
            for p in [p for p, o in own.items() if (tokens[p] or 0) > o.token]:
                world.fence(p, own.pop(p).incarnation)
            wanted = {f"{p}/token": o.token for p, o in own.items() if tokens[p] != o.token}
            wanted |= {f"{p}/offset": 0 for p in own if handle.transaction(f"{p}/offset") is None}
            if not wanted:
                return (handle, {p: handle.transaction(f"{p}/offset") or 0 for p in own}) if own else None
            with suppress(Conflicted):
                handle.commit(wanted, what="claim", commit=world.commit_id())
            yield world.step()
        return None

    def _healed(self, held: Held, handle: Handle, starts: Mapping[str, int]) -> Steps:
        """Tells of what nobody could tell of, then brings the checkpoint up to the table."""
        for p, at in starts.items():
            seen = held.checkpoints.get(p)
            if seen is not None and seen.record.offset >= at:
                continue
            untold = handle.batches(p, seen.record.offset if seen is not None else max(0, at - 1))
            yield from self._noted(held, {p: at}, untold)

    def _published(self, held: Held, work: dict[str, tuple[int, int]], handle: Handle) -> Steps:
        """Steps 4 to 6; whoever was overtaken is left out, the others go in."""
        while work:
            out = yield from self._commit(held, work, handle)
            if out:
                work = {p: r for p, r in work.items() if p not in out}
                continue
            for p in work:
                if p in held.parked:
                    yield from self._unpark(held, p)
            yield from self._noted(held, {p: end for p, (_, end) in work.items()}, tuple(work.items()))
            return

    def _commit(
        self, held: Held, work: Mapping[str, tuple[int, int]], handle: Handle
    ) -> Generator[float, None, frozenset[str]]:
        """All of it or nothing is in the table after it; in the second case who is to be left out."""
        world, guards = self.world, self.world.run_guards
        since = handle.version if guards.since else 0
        commit_id: object = world.commit_id() if guards.fresh_id else self.config.run_id
        adds = [File(world.table.name(), p, tuple(range(start, end))) for p, (start, end) in work.items()]
        transactions = {f"{p}/offset": end for p, (_, end) in work.items()}
        tokens = {p: held.own[p].token for p in work}
        if guards.token:
            transactions |= {f"{p}/token": token for p, token in tokens.items()}
        facts = {"what": "batch", "incarnation": self.config.incarnation, "tokens": tokens, "ranges": dict(work)}
        while True:
            error: Exception | None = None
            try:
                handle.commit(transactions, adds, commit=commit_id, **facts)
            except (Conflicted, Broken) as caught:
                error = caught
                yield world.step()
            handle = world.table.open()
            if error is None or handle.landed(commit_id, since):
                return frozenset()
            if isinstance(error, Broken):
                raise error
            if out := self._overtaken(handle, work, tokens):
                return out

    def _overtaken(
        self, handle: Handle, work: Mapping[str, tuple[int, int]], tokens: Mapping[str, int]
    ) -> frozenset[str]:
        """Those that a newer owner has; where there are none, those whose offset another run of this owner moved."""
        newer = frozenset(p for p in work if handle.transaction(f"{p}/token") != tokens[p])
        if newer and self.world.run_guards.token:
            for p in newer:
                self.world.fence(p, self.config.incarnation)
            return newer
        moved = frozenset(p for p, (start, _) in work.items() if handle.transaction(f"{p}/offset") != start)
        self.world.count("outrun", len(moved))
        return moved

    def _noted(self, held: Held, offsets: Mapping[str, int], batches: Iterable[tuple[str, tuple[int, int]]]) -> Steps:
        """The batches are told, then the checkpoints written."""
        if not self.world.run_guards.told_first:
            yield from self._checkpoint(held, offsets)
        for p, (start, end) in batches:
            self.world.checker.told(p, start, end)
            yield self.world.step()
        if self.world.run_guards.told_first:
            yield from self._checkpoint(held, offsets)

    def _checkpoint(self, held: Held, offsets: Mapping[str, int]) -> Steps:
        """Not being able to is no failure: the next run reads the table."""
        with suppress(CoordinationError):
            seen = self.tree.checkpoints(offsets)
            yield self.world.step()
            run = self.config.run_id
            entries = [
                Entry(held.own[p], Checkpoint(offset=at, token=held.own[p].token, run_id=run), seen.get(p))
                for p, at in offsets.items()
            ]
            done = write_checkpoints(self.tree, self.node, entries, self.world.checkpoint_guards)
            self.world.count("refused", sum(conflict is not None for conflict in done.values()))
        yield self.world.step()

    def _checks(self, held: Held, partition: str) -> tuple[Check, ...]:
        if not self.world.run_guards.own_at_park:
            return ()
        return Check(self.tree.paths.own(partition), held.own[partition].version), Check(self.node)

    def _park(self, held: Held, partition: str, offset: int) -> Steps:
        """The real one looks at the table before, for what another run of the same owner commits; here the checks stand
        alone."""
        try:
            checks, token = self._checks(held, partition), str(held.own[partition].token)
            park(self.tree, partition, token, retry_after=BACK_OFF, offset=offset, checks=checks)
            self.world.count("parked")
        except Conflict:
            self.world.count("refused")
        yield self.world.step()

    def _unpark(self, held: Held, partition: str) -> Steps:
        with suppress(CoordinationError):
            unpark(self.tree, partition, self._checks(held, partition))
        yield self.world.step()


def replay(world: "World", partition: str, random: Random) -> Steps:
    """Replaces the rows of a past range, beside live consumption; touches neither token nor offset."""
    while True:
        handle = world.table.open()
        offset = handle.transaction(f"{partition}/offset") or 0
        if offset < 2:
            return
        start = random.randrange(offset)
        end = random.randrange(start, offset) + 1
        files = [f for f in handle.files(partition) if any(start <= o < end for o in f.offsets)]
        yield random.uniform(0.1, world.longest_batch)
        kept = [tuple(o for o in f.offsets if not start <= o < end) for f in files]
        rewritten = [*[k for k in kept if k], tuple(range(start, end))]
        adds = [File(world.table.name(), partition, offsets) for offsets in rewritten]
        commit_id = world.commit_id()
        try:
            handle.commit({}, adds, [f.name for f in files], what="replay", commit=commit_id)
            return
        except Conflicted:
            pass
        except Broken:
            if world.table.open().landed(commit_id):
                return
        yield world.step()
