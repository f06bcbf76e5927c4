"""Repairs a group with unreadable records: lists them, and deletes or recreates those that an operator names.

Laws:
1. Nothing is repaired automatically: the record of a newer rota is unreadable too. Until an operator repairs a record,
   nothing is concluded from it.
2. A repair writes at the version at which the record was unreadable. If another process wrote it meanwhile, it is left
   alone.
3. Only unreadable content is lost. An own record becomes free, and its former owner is fenced by its version and by the
   next token. The head starts at the epoch of the newest audit, which was written with it; the controller at a term
   that no process had; a pipeline with the partitions that have a target or an owner; the settings under a new id,
   which no table has, so that no run writes before `rota adopt`. `EFFECT` describes this to the operator.
"""

import secrets
from collections.abc import Iterable, Sequence
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
LOST_REPLIES = 3  # attempts at one write whose reply is lost each time
SINGLE: dict[str, type[Record]] = {  # by the name of the node
    "meta": Meta, "controller": Controller, "head": Head, "overrides": GroupOverrides, "refused": Refusals,
}  # fmt: skip
FOLDERS: dict[str, type[Record]] = {  # by the name of the folder
    "workers": WorkerOverrides, "live": Live, "partitions": Partitions, "assign": Slots, "own": Own, "grab": Grab,
    "checkpoints": Checkpoint, "runs": RunNode, "parked": Parked, "epochs": Epoch,
}  # fmt: skip
LEFT: dict[type[Record], str] = {  # what an operator cannot delete -> what removes it
    Live: "restart the worker, and it goes with the worker's session",
    Grab: "restart the worker that made it, and it goes with its session",
    RunNode: "end the run on Dagster's page, and it goes with its session",
    Slots: "the next rebalance writes it anew; the sensor asks for one",  # but where workers decide alone
}


EFFECT = (
    "Removing sets an own record free and fences its former owner. Settings begin anew under a new id: no run writes then "
    "until: rota adopt. The head begins at the newest epoch of the history, the controller without memory, a "
    "pipeline with the partitions that have a target or an owner, overrides as none. A checkpoint comes back "
    "from its table, a park lets its partition be tried again, and the history loses what is removed of it."
)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An unreadable record: its path, and why. `instead`: what removes it if an operator cannot."""

    path: str
    why: str
    instead: str


def find_unreadable(tree: GroupState) -> tuple[Unreadable, ...]:
    """Every record of the group that cannot be read now, by path. Raises Unavailable."""
    fresh = GroupState(tree.store, tree.group)  # it names what it reads, and nothing that is gone since
    for name, model in SINGLE.items():
        fresh.read_many([f"{tree.paths.root}/{name}"], model)
    for folder, model in FOLDERS.items():
        path = f"{tree.paths.root}/{folder}"
        names = [name for name in tree.store.children(path) if any(ours(name) for ours in OURS)]
        fresh.read_many([f"{path}/{name}" for name in names], model)
    meta = fresh.read_many([tree.paths.meta], Meta).get(tree.paths.meta)
    alone = meta is not None and meta.record.protocol != "assigned"
    return tuple(_describe(tree, path, alone) for path in sorted(fresh.unreadable))


def repair(tree: GroupState, paths: Sequence[str]) -> tuple[str, ...]:
    """Deletes or recreates the unreadable records at the paths, or below them. Returns their paths.

    Raises ConfigError if a path holds no unreadable record, if one cannot be deleted, or for the settings while runs
    are alive: then nothing was written. Raises Conflict if another process wrote a record first; Unavailable; Unknown:
    earlier writes stay.
    """
    found = find_unreadable(tree)
    chosen = [one for one in found if any(one.path == path or one.path.startswith(f"{path}/") for path in paths)]
    _check(tree, chosen, paths)
    made = tuple(one.path for one in chosen if not one.instead)
    # the head first: it determines the effective targets
    for path in sorted(made, key=lambda path: path != tree.paths.head):
        _replace(tree, path)
    return made


def check_readable(tree: GroupState, verb: str) -> None:
    """Raises ConfigError if a record that an operator can delete is unreadable: `rota <verb>` would overwrite it."""
    if torn := [one.path for one in find_unreadable(tree) if not one.instead]:
        raise ConfigError(
            f"{counted(len(torn), 'record')} of group {tree.group!r} cannot be read, the first is {torn[0]}. Restore or "
            f"remove them before you {verb}: {repair_command(torn[0])}"
        )


def _describe(tree: GroupState, path: str, alone: bool) -> Unreadable:
    model, why = _find_model(tree, path), "it can be read by now"
    try:
        tree.read(path, model)
    except Undecodable as error:
        why = error.what
    return Unreadable(path, why, "" if alone and model is Slots else LEFT.get(model, ""))


def _check(tree: GroupState, chosen: Sequence[Unreadable], paths: Iterable[str]) -> None:
    again = repair_command(tree.paths.meta)
    for path in paths:
        if not any(one.path == path or one.path.startswith(f"{path}/") for one in chosen):
            raise ConfigError(f"No unreadable record of group {tree.group!r} at {path}. See which there are: {again}")
    for one in chosen:
        if one.instead and (one.path in paths or len(chosen) == 1):
            raise ConfigError(f"{one.path} cannot be removed by hand. For it: {one.instead}")
    if tree.paths.meta in {one.path for one in chosen} and (runs := sorted(tree.working())):
        raise ConfigError(
            f"still alive: {counted(len(runs), 'run')} of group {tree.group!r}, the first is {parse_run(runs[0])[1]}. "
            f"Stop them (or the daemon), then: {again} --remove {tree.paths.meta}"
        )


def _replace(tree: GroupState, path: str) -> None:
    """Writes the repair of one record, again where its reply was lost; nothing if the record can be read by then."""
    for attempt in range(LOST_REPLIES):
        node = tree.store.get(path)
        if node is None or tree.read_many([path], _find_model(tree, path)):
            break
        try:
            tree.store.multi([_make_op(tree, path, node)])
        except Conflict as conflict:
            why = f"{path} was written by another process meanwhile. Look again: {repair_command(path)}"
            raise Conflict(why, path=path, index=conflict.index, cause=conflict.cause) from conflict
        except Unknown:
            if attempt == LOST_REPLIES - 1:
                raise
            settle(tree.store)
        else:
            break
    tree.unreadable.pop(path, None)


def _find_model(tree: GroupState, path: str) -> type[Record]:
    first, _, name = path.removeprefix(f"{tree.paths.root}/").partition("/")
    return FOLDERS[first] if name else SINGLE[first]


def _make_op(tree: GroupState, path: str, node: Node) -> Op:
    """The write that repairs the record; see the third law."""
    model = _find_model(tree, path)
    record: Record
    if model is Meta:
        record = Meta(id=secrets.token_hex(16), level=tree.levels.level, floor=tree.levels.level)
    elif model is Head:
        epochs = [int(name) for name in tree.store.children(tree.paths.epochs) if name.isdigit()]
        record = Head(epoch=max(epochs, default=0))
    elif model is Controller:
        record = Controller(term=node.version + 1)  # each term was a write of its own
    elif model is Partitions:
        record = Partitions(keys=_find_keys(tree, path.rpartition("/")[2]))
    elif model in (GroupOverrides, Refusals, Own):
        record = model()
    else:
        return Delete(path, node.version)
    return Set(path, encode(record), node.version)


def _find_keys(tree: GroupState, pipeline: str) -> tuple[str, ...]:
    """The keys of the pipeline that have a target or an owner."""
    own = tree.read_many([tree.paths.own(p) for p in tree.store.children(tree.paths.owns) if is_partition(p)], Own)
    ids = {path.rpartition("/")[2] for path, read in own.items() if read.record.incarnation}
    ids |= {p for target in tree.targets()[1].values() for p in target.partitions}
    return tuple(sorted((key_of(p) for p in ids if pipeline_of(p) == pipeline), key=str.encode))
