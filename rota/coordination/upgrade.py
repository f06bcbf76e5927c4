"""Raises the level of a group's records once every live process reads and writes it.

Laws:
1. After the level is raised, no live worker or run is of a build that does not read and write it. Three steps ensure it:
   `finalize` raises the floor, then lists the live nodes, then raises the level. A process makes its node in one multi with
   a check of the settings that it read (`membership.py`). If its node was made before the floor, it is listed. If not, the
   process has read the floor, and is refused.
2. No older controller publishes after the level is raised. The last write checks the controller's record, which states the
   process that took control last. A process that takes control afterwards reads the settings again before it decides.
3. If one process is too old, the level stays. The floor is lowered again, so that the process may restart. If `finalize`
   itself dies, the next one does either.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rota.coordination.fields import ProcessFields
from rota.coordination.group_state import COMPARES, GroupState
from rota.coordination.levels import Levels
from rota.coordination.records import Meta, RunNode, encode
from rota.coordination.store import Check, Set, settle
from rota.errors import Conflict, Unknown
from rota.ids import LIVENESS_SUFFIX


@dataclass(frozen=True, slots=True)
class Process:
    """A worker, a run, or the controller: the process that rebalanced last. `levels` None: its record cannot be read."""

    kind: str
    name: str
    levels: Levels | None

    def reaches(self, level: int) -> bool:
        """Return whether it reads and writes this level."""
        return self.levels is not None and self.levels.include(level)


def list_processes(tree: GroupState) -> tuple[Process, ...]:
    """The processes of the group that state their build: live workers, live runs, and the controller if there was one."""
    controller = tree.controller().record
    return (*_list_live(tree), *([_state("controller", "", controller)] if controller.term else []))


def _list_live(tree: GroupState) -> Iterator[Process]:
    for view in tree.live():
        yield _state("worker", view.incarnation, view.record)
    names = [name for name in tree.store.children(tree.paths.runs) if name.endswith(LIVENESS_SUFFIX)]
    paths = {name: f"{tree.paths.runs}/{name}" for name in names}
    runs = tree.read_many(list(paths.values()), RunNode)
    for name, path in paths.items():
        if path in runs or path in tree.unreadable:
            yield _state("run", name.rpartition("@")[0], runs[path].record if path in runs else None)


def _state(kind: str, name: str, record: ProcessFields | None) -> Process:
    return Process(kind, name, Levels(record.lowest, record.level, record.build) if record is not None else None)


def finalize(tree: GroupState) -> Meta:
    """Raises the group to the level of this process, if every live process reads and writes it. Returns the settings.

    Their level is lower if a process is too old: `list_processes` lists it. Raises Unavailable, Unknown.
    """
    level = tree.levels.level
    if tree.meta().level == level or not _all_reach(tree, level):
        return _set_floor(tree, tree.meta().level)
    for _ in range(COMPARES):
        _set_floor(tree, level)
        seen, controller = tree.settings(), tree.controller()
        if seen.record.level == level:  # the reply to an earlier write was lost
            return seen.record
        if seen.record.floor != level:  # another process lowered it
            continue
        if not _all_reach(tree, level):
            return _set_floor(tree, seen.record.level)
        raised = seen.record.model_copy(update={"level": level, "floor": level, "raised_by": tree.levels.build})
        try:
            write = Set(tree.paths.meta, encode(raised), seen.version)
            tree.store.multi([Check(tree.paths.controller, controller.version), write])
        except (Conflict, Unknown):
            settle(tree.store)
        else:
            return raised
    raise Unknown(f"{COMPARES} attempts to raise the level were lost. Type it again when ZooKeeper answers")


def _all_reach(tree: GroupState, level: int) -> bool:
    return all(one.reaches(level) for one in list_processes(tree))


def _set_floor(tree: GroupState, floor: int) -> Meta:
    # `meta` reports that there is no such group
    return tree.update(tree.paths.meta, Meta, lambda now: (now or tree.meta()).model_copy(update={"floor": floor}))
