"""Repairs a group whose records cannot be read: lists them, and removes or founds anew those that a person names.

Laws:
1. Nothing is repaired by itself: the record of a newer rota is unreadable too. Until a person repairs a record, nobody
   concludes anything from it.
2. A repair writes at the version at which the record was unreadable. If somebody wrote it meanwhile, it is left alone.
3. Only what nobody can read is lost. An own record becomes free, and whoever held it is fenced by its version and by the
   next token. The head begins at the epoch of the newest audit, which was made with it; the controller at a term that
   nobody had; a pipeline with the partitions that have a target or an owner; the settings under a new id, which no table
   carries, so that no run writes before `rota adopt`.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rota.coordination.group_state import GroupState
from rota.coordination.records import (
    Checkpoint,
    Controller,
    Epoch,
    Grab,
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
    encode,
    repair_command,
)
from rota.coordination.store import Delete, Node, Op, Set, settle
from rota.errors import ConfigError, Conflict, Undecodable, Unknown, counted
from rota.ids import is_id, is_incarnation, is_partition, is_run, key_of, parse_run, pipeline_of

OURS = (is_id, is_partition, is_incarnation, is_run)  # other names in a folder are foreign
LOST_REPLIES = 3  # of one write whose reply is lost each time
NEVER = "It cannot be removed by hand: "  # begins the effect of records that go or mend without a person


@dataclass(frozen=True, slots=True)
class Kind:
    """What a record is to a person, and what removing it does; `{name}` is the name of its node."""

    model: type[Record]
    record: str
    effect: str


SINGLE = {  # by the name of the node
    "meta": Kind(
        Meta,
        "settings of the group",
        "The group gets a new id, and no run writes into its tables until: rota adopt{group}. End all runs before",
    ),
    "controller": Kind(Controller, "controller", "It begins anew: what the assignor remembers is lost"),
    "head": Kind(Head, "current epoch", "It begins anew at the epoch of the newest entry of the history"),
    "overrides": Kind(GroupOverrides, "overrides of the group", "It begins anew: not paused, no partition is pinned"),
    "refused": Kind(Refusals, "refused writes", "The history no longer shows the writes that were refused"),
}
FOLDERS = {  # by the name of the folder
    "workers": Kind(
        WorkerOverrides, "overrides of worker {name}", "It is neither cordoned nor draining, nor anything else"
    ),
    "live": Kind(Live, "live node of {name}", NEVER + "restart the worker, and it goes with the worker's session"),
    "partitions": Kind(
        Partitions,
        "partitions of pipeline {name}",
        "It begins anew with the partitions that have a target or an owner; the sensor adds the others",
    ),
    "assign": Kind(
        Slots, "target of worker {name}", NEVER + "the next rebalance writes it anew; the sensor asks for one"
    ),
    "own": Kind(Own, "own record of partition {name}", "It becomes free, and its former owner is fenced"),
    "grab": Kind(Grab, "grab of {name}", NEVER + "restart the worker that made it, and it goes with its session"),
    "checkpoints": Kind(
        Checkpoint, "checkpoint of partition {name}", "The next run writes the offset that the table has"
    ),
    "runs": Kind(RunNode, "node of run {name}", NEVER + "end the run on Dagster's page, and it goes with its session"),
    "parked": Kind(Parked, "park of partition {name}", "The partition is tried again"),
    "epochs": Kind(Epoch, "epoch {name} of the history", "The history no longer shows this epoch"),
}
CHOSEN = Kind(  # where workers decide alone
    Slots,
    "target of worker {name}",
    "The worker writes it anew, which it also does by itself within seconds: if it does not, restart it",
)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that cannot be read: where and what it is, why it cannot be read, and what removing it does.

    If it is not `removable`, `effect` says what makes it go instead."""

    path: str
    record: str
    why: str
    removable: bool
    effect: str


def find_unreadable(tree: GroupState) -> tuple[Unreadable, ...]:
    """Every record of the group that cannot be read now, by path. Raises Unavailable."""
    fresh = GroupState(tree.store, tree.group)  # it names what it reads, and nothing that is gone since
    kinds: dict[str, Kind] = {}
    for kind, paths in _list_records(fresh):
        fresh.read_many(paths, kind.model)
        kinds |= dict.fromkeys(paths, kind)
    return tuple(_describe(tree, kinds[path], path) for path in sorted(fresh.unreadable))


def repair(tree: GroupState, paths: Sequence[str]) -> tuple[str, ...]:
    """Removes or founds anew the unreadable records at the paths, or below them, and returns their paths.

    Raises ConfigError where a path holds no unreadable record, where one cannot be removed, and for the settings while
    runs are alive: then nothing was written. Raises Conflict where somebody else wrote a record first, Unavailable,
    Unknown: then what was written before stays."""
    found = find_unreadable(tree)
    chosen = [one for one in found if any(one.path == path or one.path.startswith(f"{path}/") for path in paths)]
    _check(tree, chosen, paths)
    made = tuple(one.path for one in chosen if one.removable)
    for path in sorted(made, key=lambda path: path != tree.paths.head):  # the head first: it says what targets are
        _replace(tree, path)
    return made


def check_readable(tree: GroupState, verb: str) -> None:
    """Raises ConfigError where a record that a person can remove cannot be read: `rota <verb>` would write over it."""
    if torn := [one.path for one in find_unreadable(tree) if one.removable]:
        raise ConfigError(
            f"{counted(len(torn), 'record')} of group {tree.group!r} cannot be read, the first is {torn[0]}. Restore or "
            f"remove them before you {verb}: {repair_command(torn[0])}"
        )


def _list_records(tree: GroupState) -> Iterator[tuple[Kind, tuple[str, ...]]]:
    """Each kind of record with the paths of those that there are or may be."""
    for name, kind in SINGLE.items():
        yield kind, (f"{tree.paths.root}/{name}",)
    meta = tree.read_many([tree.paths.meta], Meta).get(tree.paths.meta)
    alone = meta is not None and meta.record.protocol != "assigned"
    for folder, kind in (FOLDERS | ({"assign": CHOSEN} if alone else {})).items():
        path = f"{tree.paths.root}/{folder}"
        names = (n for n in tree.store.children(path) if any(ours(n) for ours in OURS))
        yield kind, tuple(f"{path}/{name}" for name in names)


def _describe(tree: GroupState, kind: Kind, path: str) -> Unreadable:
    try:
        tree.read(path, kind.model)
    except Undecodable as error:
        why = error.what
    else:
        why = "it can be read by now"
    name, group = path.rpartition("/")[2], "" if tree.group == "default" else f" --group {tree.group}"
    return Unreadable(
        path,
        kind.record.format(name=name),
        why,
        not kind.effect.startswith(NEVER),
        kind.effect.removeprefix(NEVER).format(name=name, group=group),
    )


def _check(tree: GroupState, chosen: Sequence[Unreadable], paths: Iterable[str]) -> None:
    again = repair_command(tree.paths.meta)
    for path in paths:
        if not any(one.path == path or one.path.startswith(f"{path}/") for one in chosen):
            raise ConfigError(f"No unreadable record of group {tree.group!r} at {path}. See which there are: {again}")
    for one in chosen:
        if not one.removable and (one.path in paths or len(chosen) == 1):
            raise ConfigError(f"{one.path} cannot be removed by hand. For it: {one.effect}")
    if tree.paths.meta in {one.path for one in chosen} and (runs := sorted(tree.working())):
        raise ConfigError(
            f"still alive: {counted(len(runs), 'run')} of group {tree.group!r}, the first is {parse_run(runs[0])[1]}. "
            f"Stop them (or the daemon), then: {again} --remove {tree.paths.meta}"
        )


def _replace(tree: GroupState, path: str) -> None:
    """Writes the repair of one record, again where its reply was lost; nothing if the record can be read by then."""
    for attempt in range(LOST_REPLIES):
        node = tree.store.get(path)
        if node is None or tree.read_many([path], _model(tree, path)):
            break
        try:
            tree.store.multi([_make_op(tree, path, node)])
        except Conflict as conflict:
            why = f"{path} was written by somebody else meanwhile. Look again: {repair_command(path)}"
            raise Conflict(why, path=path, index=conflict.index, cause=conflict.cause) from conflict
        except Unknown:
            if attempt == LOST_REPLIES - 1:
                raise
            settle(tree.store)
        else:
            break
    tree.unreadable.pop(path, None)


def _model(tree: GroupState, path: str) -> type[Record]:
    first, _, name = path.removeprefix(f"{tree.paths.root}/").partition("/")
    return (FOLDERS[first] if name else SINGLE[first]).model


def _make_op(tree: GroupState, path: str, node: Node) -> Op:
    """The write that repairs the record; see the third law."""
    paths, folder = tree.paths, path.rpartition("/")[0]
    if path == paths.meta:
        return Set(path, encode(Meta(id=secrets.token_hex(16))), node.version)
    if path == paths.head:
        epochs = [int(name) for name in tree.store.children(paths.epochs) if name.isdigit()]
        return Set(path, encode(Head(epoch=max(epochs, default=0))), node.version)
    if path == paths.controller:
        return Set(path, encode(Controller(term=node.version + 1)), node.version)  # each term was a write of its own
    if path == paths.overrides:
        return Set(path, encode(GroupOverrides()), node.version)
    if path == paths.refused:
        return Set(path, encode(Refusals()), node.version)
    if folder == paths.partitions:
        return Set(path, encode(Partitions(keys=_find_keys(tree, path.rpartition("/")[2]))), node.version)
    if folder == paths.owns:
        return Set(path, encode(Own()), node.version)
    return Delete(path, node.version)


def _find_keys(tree: GroupState, pipeline: str) -> tuple[str, ...]:
    """The keys of the pipeline that have a target or an owner."""
    own = tree.read_many([tree.paths.own(p) for p in tree.store.children(tree.paths.owns) if is_partition(p)], Own)
    ids = {path.rpartition("/")[2] for path, read in own.items() if read.record.incarnation}
    ids |= {p for target in tree.targets()[1].values() for p in target.partitions}
    return tuple(sorted((key_of(p) for p in ids if pipeline_of(p) == pipeline), key=str.encode))
