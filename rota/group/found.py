"""Found a group with the settings and the partitions that the code declares.

Laws: what exists is left as it is, so founding again writes nothing. No partition is ever removed. A process does not
write its settings again after another Dagster process replaced them with its own.
"""

from collections.abc import Mapping
from dataclasses import replace

from rota.catalog import Catalog
from rota.coordination.alone import found_own_records
from rota.coordination.group_state import GroupState
from rota.coordination.readings import Readings
from rota.coordination.records import Meta
from rota.coordination.snapshot import read_basis
from rota.coordination.store import Store
from rota.core.protocols.known_protocols import ASSIGNED
from rota.errors import RotaError
from rota.group.rebalance import GroupObservation, observe
from rota.ids import partition_id
from rota.pipeline import Group
from rota.registry import open_source

Listed = tuple[str, ...] | str  # the keys of a source, or why it cannot be read
Declared = tuple[str, Mapping[str, object], int]  # settings as declared (repr) and as written, the write's zxid
last_declared: dict[str, Declared] = {}  # group's id -> what this process last declared


def list_sources(catalog: Catalog, group: str) -> dict[str, Listed]:
    """Map each pipeline of the group to its source's keys, or to the reason why the source could not be read."""
    found: dict[str, Listed] = {}
    for pipeline in catalog.of_group(group):
        try:
            found[pipeline.name] = open_source(pipeline).list_keys()
        except (RotaError, OSError) as error:
            found[pipeline.name] = str(error)
    return found


def found_group(tree: GroupState, catalog: Catalog, listed: Mapping[str, Listed]) -> dict[str, str]:
    """Found the group, write its declared settings, and add the partitions of `listed`, fresh from `list_sources`.

    Returns the problems: why a pipeline's source could not be read, which pipeline's partitions do not fit, and which
    other declaration of the group is in force. Raises Unavailable, Undecodable.
    """
    other = _put_settings(tree, catalog.groups[tree.group])
    problems = {f"group {tree.group}": other} if other else {}
    for name, keys in listed.items():
        if isinstance(keys, str):
            problems[name] = keys
            continue
        try:
            tree.grow(name, keys, catalog.pipelines[name].requires)
        except RotaError as error:
            problems[name] = str(error)
    if tree.meta().protocol != ASSIGNED and (seen := read_basis(tree)).moved:
        found_own_records(tree, (partition_id(name, k) for name, r in seen.partitions.items() for k in r.keys))
    return problems


def follow(
    store: Store, catalog: Catalog, group: str, *, slots: bool = False, listed: Mapping[str, Listed] | None = None
) -> GroupObservation:
    """Found what is declared and missing, then observe, as Dagster's sensor does at each tick.

    The observation has the problems of both steps. `slots` is as in `observe`; `listed` is given if the sources were read
    just now.
    """
    tree = GroupState(store, group)
    problems = found_group(tree, catalog, list_sources(catalog, group) if listed is None else listed)
    seen = observe(tree, slots=slots)
    return replace(seen, problems={**problems, **seen.problems})


class GroupWatcher:
    """Follows a group again and again.

    Law: `poll` returns what `follow` would return. It reads ZooKeeper again only if the store's stamp or a source
    changed, or if the last observation needed a decision or has a `due`.
    """

    def __init__(self, store: Store, catalog: Catalog, group: str) -> None:
        self.store, self.catalog, self.group = store, catalog, group
        self._readings = Readings(store)

    def poll(self) -> GroupObservation:
        """Return the current observation of the group. Raises as `follow` does."""
        self._readings.refresh()
        listed = list_sources(self.catalog, self.group)
        return self._readings.keep(
            "observation",
            lambda: follow(self.store, self.catalog, self.group, listed=listed),
            about=listed,
            lasts=lambda seen: not seen.needed and seen.due is None,  # `due` passes without a change in ZooKeeper
        )


def _put_settings(tree: GroupState, declared: Group) -> str:
    """Write the settings that the code declares now. Return an empty string, or why the stored settings were kept.

    Settings that this process wrote and another process replaced are not written again: the two would replace each
    other's settings for ever. The returned text names both declarations. If the stored settings are older than ours, an
    older ZooKeeper was restored, and the settings are written again.
    """
    wanted: dict[str, object] = {
        "protocol": declared.protocol,
        "assignor": declared.assignor,
        "options": dict(declared.options),
        "budget": declared.budget,
        "cooldown": float(declared.cooldown),
        "grace": float(declared.grace),
    }
    seen = tree.read(tree.paths.meta, Meta)
    said, ours, since = last_declared.get(seen.record.id, ("", {}, 0)) if seen is not None else ("", {}, 0)
    if seen is None or said != repr(wanted) or seen.node.mzxid < since:
        meta = tree.found(**wanted)  # type: ignore[arg-type]
        now = tree.read(tree.paths.meta, Meta)
        last_declared[meta.id] = repr(wanted), meta.model_dump(include=set(wanted)), now.node.mzxid if now else 0
        return ""
    theirs = seen.record.model_dump(include=set(wanted))
    differ = [name for name in wanted if ours[name] != theirs[name]]
    if not differ:
        return ""
    here, there = (", ".join(f"{n}={s[n]}" for n in differ) for s in (ours, theirs))
    return (
        f"group {tree.group} is declared with {here} here, and with {there} by another Dagster, which is in force. "
        f"Declare it alike in both, or give one of them a group of its own"
    )
