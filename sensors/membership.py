"""`<group>__membership`: sees who joins and leaves, and asks for a rebalance when the target no longer fits."""

import dagster as dg

from assets import names
from resources.zookeeper import ZooKeeperResource
from rota.pipeline import Catalog, Group
from sensors import runs
from sensors.polling import poll


def membership(group: Group, catalog: Catalog) -> dg.SensorDefinition:
    """Law: it compares what is there with what the published epoch was made from, and remembers nothing."""
    job = names.rebalance_job(group.name)

    @dg.sensor(
        name=names.name(group.name, "membership"),
        job_name=job,
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Watches group {group.name}: its workers, wishes and partitions. Asks for one rebalance at a time.",
    )
    def look(context: dg.SensorEvaluationContext, zookeeper: ZooKeeperResource) -> dg.SensorResult | dg.SkipReason:
        from rota.rebalance import observe

        if waiting := runs.unfinished(context.instance, job):
            return dg.SkipReason(f"rebalance {waiting[0].run_id} is not over yet")
        if (seconds := runs.rest(context.instance, job)) > 0:
            return dg.SkipReason(f"the last rebalance failed; the next one in {seconds:.0f} s")
        with zookeeper.store() as store:
            seen = poll(lambda: observe(store, catalog, group.name), lambda seen: seen.needed)
        add_keys(context.instance, seen.keys)
        if not seen.needed:
            return dg.SkipReason(seen.reason)
        observation = dg.AssetObservation(
            names.membership(group.name),
            description=seen.reason,
            metadata={
                "reason": seen.reason,
                "workers": len(seen.workers),
                "live": ", ".join(seen.workers) or "nobody",
                "joined": ", ".join(seen.joined),
                "left": ", ".join(seen.left),
            },
            tags={"dagster/data_version": seen.basis},
        )
        return dg.SensorResult(
            run_requests=[dg.RunRequest(tags={"rota/group": group.name})], asset_events=[observation]
        )

    return look


def add_keys(instance: dg.DagsterInstance, keys: dict[str, tuple[str, ...]]) -> None:
    """New source keys become Dagster's partition keys, in order, by difference; none is ever taken away."""
    for pipeline, there in keys.items():
        name = str(names.partition_set(pipeline).name)
        if new := sorted(set(there) - set(instance.get_dynamic_partitions(name))):
            instance.add_dynamic_partitions(name, new)
