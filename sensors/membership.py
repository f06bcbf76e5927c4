"""`<group>__membership`: watches the workers of a group and requests a rebalance when the target no longer fits."""

import dagster as dg

from rota.catalog import Catalog
from rota.dagster.assets import checks
from rota.dagster.assets.check_results import find_unshown
from rota.dagster.assets.failure import in_one_line
from rota.dagster.assets.names import Names
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.dagster.sensors import runs
from rota.dagster.sensors.polling import count_places, poll
from rota.ids import partition_id
from rota.pipeline import Group

# Dagster's data version of an external asset without one. With another version, the assignment would be "unsynced" after an
# epoch that moves nothing.
VERSION = {"dagster/data_version": "INITIAL"}
PAUSE = 2.0  # seconds between two polls while no worker joins or leaves: for new partitions and overrides


def make_membership_sensor(group: Group, catalog: Catalog, names: Names) -> dg.SensorDefinition:
    """Return the sensor.

    Invariants: it compares the group with the basis of the published epoch. It stores only the settings that it wrote, so
    that it does not overwrite those of another deployment. A watch reports at once that a worker joined or ended. A failed
    report stops no rebalance.
    """

    @dg.sensor(
        name=names.membership_sensor(group.name),
        job_name=names.rebalance_job(group.name),
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Watches group {group.name}: its workers, overrides and partitions. "
        + (
            "Requests one rebalance at a time."
            if group.protocol == "assigned"
            else "Requests a record of the moves of its workers."
        ),
    )
    def tick(context: dg.SensorEvaluationContext, rota_zookeeper: ZooKeeperResource) -> dg.SensorResult | dg.SkipReason:
        with in_one_line():
            found = decide(context, rota_zookeeper)
        files = checks.check_files(names.membership(group.name), catalog.unserved)
        try:
            unshown = find_unshown(context.instance, [files])
        except Exception as error:  # the decision is valid, whatever Dagster's records contain
            context.log.error(f"{checks.SERVED} is not reported: {type(error).__name__}: {error}")
            return found
        if not unshown:
            return found
        if isinstance(found, dg.SkipReason):
            return dg.SensorResult(skip_reason=found, asset_events=unshown)
        return found._replace(asset_events=[*found.asset_events, *unshown])

    def decide(context: dg.SensorEvaluationContext, zookeeper: ZooKeeperResource) -> dg.SensorResult | dg.SkipReason:
        from rota.coordination.change_signal import ChangeSignal
        from rota.group.found import GroupWatcher, follow
        from rota.group.rebalance import GroupObservation
        from rota.registry import find_interval

        mine = runs.Runs.of(context, names.rebalance_job(group.name))
        if (seconds := mine.read_pause()) > 0:
            return dg.SkipReason(f"the last rebalance failed; the next one starts in {seconds:.0f} s")

        def poll_once() -> tuple[list[dg.DagsterRun], GroupObservation]:
            changed.listen(tree.store, tree.paths.lives)
            unfinished: list[dg.DagsterRun] = []
            seen = watcher.poll() if known else None
            if seen is None or seen.needed:  # Dagster's storage is read once a tick, before the group
                unfinished = mine.list_unfinished(tree)
                seen = follow(tree.store, catalog, group.name, slots=not known)  # the targets once a tick
            for pipeline, keys in seen.keys.items():
                if known.get(pipeline) != keys:
                    add_partitions(context.instance, names, pipeline, keys)  # before any epoch can name them
                    known[pipeline] = keys
            return unfinished, seen

        def is_due(found: tuple[list[dg.DagsterRun], GroupObservation]) -> bool:
            return found[1].needed and not found[0]

        known: dict[str, tuple[str, ...]] = {}

        with zookeeper.tree(group.name) as tree:
            watcher = GroupWatcher(tree.store, catalog, group.name)
            changed, places = ChangeSignal(), count_places(context.instance)
            pause = max(PAUSE, find_interval(catalog.of_group(group.name)))
            unfinished, seen = poll(poll_once, is_due, places, pause=pause, rest=changed.wait)
        for pipeline, why in seen.problems.items():
            context.log.error(f"pipeline {pipeline}: {why}")
        if unfinished:
            return dg.SkipReason(f"{seen.reason}; rebalance {unfinished[0].run_id} has not finished")
        if not seen.needed:
            return dg.SkipReason("; ".join([seen.reason, *seen.problems.values()]))
        shown = dg.AssetMaterialization(
            names.membership(group.name),
            description=seen.reason,
            metadata={
                "reason": seen.reason,
                "workers": len(seen.workers),
                "live": ", ".join(seen.workers) or "none",
                **({"joined": ", ".join(seen.joined)} if seen.joined else {}),
                **({"left": ", ".join(seen.left)} if seen.left else {}),
                **({"problems": "; ".join(seen.problems.values())} if seen.problems else {}),
            },
            tags=VERSION,
        )
        return dg.SensorResult(run_requests=[dg.RunRequest()], asset_events=[shown])

    return tick


def add_partitions(instance: dg.DagsterInstance, names: Names, pipeline: str, keys: tuple[str, ...]) -> None:
    """Add the ids of new source keys to Dagster's partition keys, in order. No key is ever removed."""
    name = str(names.partition_set(pipeline).name)
    if new := sorted({partition_id(pipeline, key) for key in keys}.difference(instance.get_dynamic_partitions(name))):
        instance.add_dynamic_partitions(name, new)
