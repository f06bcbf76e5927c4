"""A group with two workers, a real Spark and an instance of Dagster's, and what the page shows of its pipeline."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value
from deltalake import DeltaTable

from rota.catalog import load
from rota.coordination.client import connect
from rota.coordination.group_state import GroupState
from rota.coordination.membership import join
from rota.coordination.records import Live
from rota.dagster.assets.names import Names
from rota.dagster.assets.pipeline_checks import Memory, evaluate_pipeline
from rota.dagster.location import compose
from rota.group.found import follow
from tests.claiming import claim_one
from tests.face.desk import SESSION

names = Names()

FILE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files("{folder}/p", format="json", schema="n int", settle=0), table=delta("{folder}/t"), group="{group}",
)
"""


class Bench:
    """One pipeline `p` with two workers in a group of its own, and an instance of Dagster's."""

    def __init__(self, hosts: str, spark: str, folder: Path, instance: dg.DagsterInstance) -> None:
        self.folder, self.instance = folder, instance
        self.group = f"g{uuid.uuid4().hex[:8]}"
        (folder / "pipelines").mkdir()
        (folder / "pipelines" / "p.py").write_text(FILE.format(folder=folder, group=self.group))
        self.catalog = load(folder / "pipelines")
        pages = dg.define_asset_job("pages", dg.AssetSelection.assets(*names.consumed("p")))  # takes checks along
        self.defs = dg.Definitions.merge(compose(self.catalog), dg.Definitions(jobs=[pages])).get_repository_def()
        self.stores = [connect(hosts, SESSION) for _ in range(3)]
        self.tree = GroupState(self.stores[0], self.group)
        self.tree.found()
        self.incarnations = {
            f"w{i}": join(GroupState(store, self.group), f"w{i}", Live(endpoint=spark))
            for i, store in enumerate(self.stores[1:], 1)
        }

    def land(self, **rows: int) -> None:
        for key, number in rows.items():
            (self.folder / "p" / key).mkdir(parents=True, exist_ok=True)
            (self.folder / "p" / key / f"{uuid.uuid4().hex}.json").write_text(json.dumps({"n": number}) + "\n")

    def settle(self) -> dict[str, list[str]]:
        """Observes, rebalances, and lets each worker own what it should; incarnation -> partitions."""
        seen = follow(self.stores[0], self.catalog, self.group)
        name = str(names.partition_set("p").name)
        self.instance.add_dynamic_partitions(name, sorted({f"p:{key}" for key in seen.keys["p"]}))
        assert self.materialize("assignment").success
        held: dict[str, list[str]] = {}
        for worker, incarnation in self.incarnations.items():
            target = self.tree.target(worker)
            for partition in sorted(target.partitions if target else ()):
                own = self.tree.owned((partition,))[partition]
                if own.incarnation != incarnation:
                    claim_one(self.tree, incarnation, partition, own.version)
                held.setdefault(incarnation, []).append(partition)
        return held

    def materialize(self, what: str, config: Mapping[str, Any] | None = None, **more: Any) -> dg.ExecuteInProcessResult:
        """One of the jobs, as Dagster would run it."""
        jobs = {"assignment": names.rebalance_job(self.group), "batch": names.consume_job("p"), "replay": "p__replay"}
        return self.defs.get_job(jobs.get(what, what)).execute_in_process(
            run_config={"ops": {"p__batch": {"config": config}}} if config else None,
            instance=self.instance,
            raise_on_error=False,
            **more,
        )

    def evaluate_checks(self) -> dict[str, bool]:
        """Whether each check of the pipeline passes."""
        said, _ = evaluate_pipeline(self.tree, self.catalog.pipelines["p"], names, Memory())
        return {one.check_name: one.passed for one in said}

    def rows(self) -> list[tuple[str, int, int]]:
        """(partition, offset, n) of every row in the table."""
        found: list[tuple[str, int, int]] = []
        for file in DeltaTable(str(self.folder / "t" / "main")).file_uris():
            table = pq.ParquetFile(file).read(columns=["_partition", "_offset", "n"]).to_pydict()
            found += zip(table["_partition"], table["_offset"], table["n"], strict=True)
        return sorted(found)

    def status(self, asset: dg.AssetKey) -> tuple[list[str], list[str]]:
        """The materialized and the failed partitions, as the page counts them."""
        definition = names.partition_set("p")
        with partition_loading_context(dynamic_partitions_store=self.instance):
            seen = get_and_update_asset_status_cache_value(self.instance, asset, definition)
            assert seen is not None
            made = seen.deserialize_materialized_partition_subsets(definition).get_partition_keys()
            failed = seen.deserialize_failed_partition_subsets(definition).get_partition_keys()
        return sorted(made), sorted(failed)

    def read_shown(self, asset: dg.AssetKey, partition: str) -> dict[str, Any]:
        """The metadata of the newest materialization of one partition."""
        filters = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[partition])
        record = self.instance.fetch_materializations(filters, limit=1).records[0]
        assert record.asset_materialization is not None
        return {k: v.value for k, v in record.asset_materialization.metadata.items()}

    def version(self, asset: dg.AssetKey, partition: str) -> str:
        """The data version of one partition: what is downstream compares it."""
        filters = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[partition])
        made = self.instance.fetch_materializations(filters, limit=1).records[0].asset_materialization
        assert made is not None
        return (made.tags or {})["dagster/data_version"]

    def list_skipped(self, result: dg.ExecuteInProcessResult) -> dict[str, str]:
        """partition -> why it was skipped."""
        events = [e for e in result.all_events if e.event_type_value == "ASSET_OBSERVATION"]
        observed = [e.event_specific_data.asset_observation for e in events]
        return {str(o.partition): str(o.description) for o in observed}

    def offsets(self) -> dict[str, tuple[int, int]]:
        return {p: (c.record.offset, c.record.token) for p, c in self.tree.checkpoints().items()}
