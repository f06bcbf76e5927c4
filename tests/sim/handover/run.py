"""A consuming run as section 6 of the design has it, as an actor: it yields before each thing that others can see.

Each guard can be taken away; the checker counts what comes of it.
"""

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from rota.coordination import membership
from rota.coordination.checkpoint import Entry, write_checkpoints
from rota.coordination.ownership import Ownership
from rota.coordination.records import Checkpoint
from rota.coordination.tree import Tree
from rota.errors import Conflict, Unavailable, Unknown
from tests.sim.handover.table import Broken, Conflicted, File, Handle

if TYPE_CHECKING:
    from tests.sim.handover.world import World

Steps = Generator[float, None, None]


@dataclass(frozen=True, slots=True)
class RunGuards:
    """What a run is careful about."""

    node_first: bool = True  # its /runs node exists before it reads anything
    own: bool = True  # it keeps only what its incarnation owns
    target: bool = True  # ... and what the target still says
    token: bool = True  # it claims in the table, and its commit carries the token
    one_handle: bool = True  # offset read and commit made on one handle
    fresh_id: bool = True  # a commit id is made for each attempt, not for each run
    own_at_checkpoint: bool = True  # the checkpoint's multi checks the own record


@dataclass(frozen=True, slots=True)
class Config:
    """What a launch is told; a retry is told the same."""

    run_id: str
    incarnation: str
    partitions: tuple[str, ...]


def consume(world: "World", config: Config, tree: Tree, random: Random) -> Steps:
    """One run, from its node to its checkpoints. Ends early where it is fenced or ZooKeeper is away."""
    try:
        yield from _consume(world, config, tree, random)
    except (Unavailable, Unknown, Conflict):
        world.count("run-broken")


def _consume(world: "World", config: Config, tree: Tree, random: Random) -> Steps:
    guards = world.run_guards
    node = ""
    if guards.node_first:
        node = membership.register_run(tree, config.run_id, config.incarnation, config.partitions)
        yield world.step()
    owned = tree.owned(config.partitions)
    yield world.step()
    target = tree.target(config.incarnation.rpartition("@")[0])
    named = target.partitions if target is not None else frozenset()
    yield world.step()
    kept = {
        p: Ownership(p, view.incarnation or "", view.version, view.token)
        for p, view in owned.items()
        if (view.incarnation == config.incarnation or not guards.own) and (p in named or not guards.target)
    }
    world.count("dropped", len(config.partitions) - len(kept))
    if not guards.node_first:
        node = membership.register_run(tree, config.run_id, config.incarnation, config.partitions)
        yield world.step()
    if len(kept) < len(config.partitions):
        membership.narrow_run(tree, node, config.incarnation, kept)
        yield world.step()
    while kept:
        begun = yield from _claimed(world, config, kept)
        if begun is None:
            break
        handle, starts = begun
        latest = {p: min(world.latest(p), starts[p] + world.max_batch) for p in kept}
        yield random.uniform(0.1, world.longest_batch)  # Spark works
        if not guards.one_handle:
            handle = world.table.open()
        outcome = yield from _commit(world, config, handle, kept, starts, latest)
        if outcome is None:
            continue
        yield from _checkpoint(world, config, tree, node, kept, outcome)
        break
    yield world.step()
    membership.end_run(tree, node)


def _claimed(
    world: "World", config: Config, kept: dict[str, Ownership]
) -> Generator[float, None, "tuple[Handle, dict[str, int]] | None"]:
    """A handle that shows every token its own, and the offsets on it. Who is fenced leaves `kept`."""
    while kept:
        handle = world.table.open()
        yield world.step()
        tokens = {p: handle.transaction(f"{p}/token") or 0 for p in kept}
        if not world.run_guards.token:
            tokens = {p: o.token for p, o in kept.items()}
        for p in [p for p, o in kept.items() if tokens[p] > o.token]:
            world.fence(p, kept.pop(p).incarnation)
        older = {f"{p}/token": o.token for p, o in kept.items() if tokens[p] < o.token}
        if not older:
            return (handle, {p: handle.transaction(f"{p}/offset") or 0 for p in kept}) if kept else None
        with contextlib.suppress(Conflicted, Broken):
            handle.commit(older, what="claim", commit=world.commit_id())
        yield world.step()
    return None


def _commit(
    world: "World",
    config: Config,
    handle: Handle,
    kept: dict[str, Ownership],
    starts: Mapping[str, int],
    ends: Mapping[str, int],
) -> Generator[float, None, dict[str, int] | None]:
    """Partition -> offset in the table after the commit; None: nothing of it is there, begin again."""
    guards = world.run_guards
    commit_id: object = world.commit_id() if guards.fresh_id else config.run_id
    adds = [File(world.table.name(), p, tuple(range(starts[p], ends[p]))) for p in kept]
    transactions = {f"{p}/offset": ends[p] for p in kept}
    if guards.token:
        transactions |= {f"{p}/token": o.token for p, o in kept.items()}
    facts = {"what": "batch", "incarnation": config.incarnation, "tokens": {p: o.token for p, o in kept.items()}}
    while True:
        try:
            if any(f.offsets for f in adds):
                handle.commit(transactions, [f for f in adds if f.offsets], commit=commit_id, **facts)
            return dict(ends)
        except (Conflicted, Broken):
            pass
        yield world.step()
        handle = world.table.open()
        if handle.landed(commit_id):
            return dict(ends)
        if guards.token:
            for p in [p for p, o in kept.items() if (handle.transaction(f"{p}/token") or 0) != o.token]:
                world.fence(p, kept.pop(p).incarnation)
        if adds_changed(handle, kept, starts, adds):
            return None


def adds_changed(handle: Handle, kept: Mapping[str, Ownership], starts: Mapping[str, int], adds: list[File]) -> bool:
    """Whether this attempt cannot be sent again as it is: a partition left it, or its offset moved."""
    return len(kept) != len(adds) or any((handle.transaction(f"{p}/offset") or 0) != starts[p] for p in kept)


def _checkpoint(
    world: "World", config: Config, tree: Tree, node: str, kept: Mapping[str, Ownership], offsets: Mapping[str, int]
) -> Steps:
    seen = tree.checkpoints(kept)
    yield world.step()
    entries = []
    for p, owned in kept.items():
        there = seen.get(p)
        if there is None or there.record.offset < offsets[p]:
            record = Checkpoint(offset=offsets[p], token=owned.token, run_id=config.run_id)
            entries.append(Entry(owned, record, there))
    if entries:
        write_checkpoints(tree, node, entries, world.checkpoint_guards)


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
