"""A group in a real ZooKeeper, and ticks of the sensors of its two pipelines as a test asks for them."""

import asyncio
import json
import uuid
from collections.abc import Iterable
from pathlib import Path

import dagster as dg
from dagster import DagsterRunStatus as Status
from dagster._core.loader import LoadingContextForTest

from rota.catalog import load
from rota.coordination.client import connect
from rota.coordination.group_state import GroupState
from rota.coordination.membership import join
from rota.coordination.records import Live
from rota.dagster.assets import checks
from rota.dagster.assets.names import Names
from rota.dagster.location import compose
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.group.agent import Agent
from rota.group.rebalance import rebalance
from rota.ids import dagster_name
from tests.claiming import claim_one
from tests.sim.alone_group import rounds

names = Names()

SESSION = 60.0  # seconds: a worker that is to leave closes its session

FILE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files("{folder}/{name}", format="json", schema="n int", settle=0), table=delta("{folder}/t-{name}"),
    group="{group}",
)
"""


class Desk:
    """A group of its own in the shared ZooKeeper, the definitions of two pipelines in it, and an instance."""

    def __init__(self, hosts: str, folder: Path, instance: dg.DagsterInstance) -> None:
        self.hosts, self.folder, self.instance = hosts, folder, instance
        self.group = f"g{uuid.uuid4().hex[:8]}"
        (folder / "pipelines").mkdir()
        for name in ("p", "q"):
            text = FILE.format(folder=folder, name=name, group=self.group)
            (folder / "pipelines" / f"{name}.py").write_text(text)
        self.catalog = load(folder / "pipelines")
        self.repository = compose(self.catalog).get_repository_def()
        self.stores = [connect(hosts, SESSION)]
        self.tree = GroupState(self.stores[0], self.group)
        assert isinstance(self.tick("p__backlog"), dg.SkipReason)  # the group is not founded yet
        self.tree.found()
        self.instance.report_runless_asset_event(
            checks.check_files(names.membership(self.group), {})
        )  # of an earlier tick

    def land(self, *keys: str, pipeline: str = "p") -> None:
        for key in keys:
            (self.folder / pipeline / key).mkdir(parents=True, exist_ok=True)
            (self.folder / pipeline / key / f"{uuid.uuid4().hex}.json").write_text(json.dumps({"n": 1}) + "\n")

    def join(self, worker: str, **announced: bool) -> str:
        self.stores.append(connect(self.hosts, SESSION))
        return join(GroupState(self.stores[-1], self.group), worker, Live(**announced))

    def start(self, worker: str) -> None:
        """An agent of the worker takes what its group's protocol gives it."""
        self.stores.append(connect(self.hosts, SESSION))
        tree = GroupState(self.stores[-1], self.group)
        rounds(Agent(tree, worker, Live(), lambda _, **__: None, max_shutdown=60, session_timeout=5))

    def own(self, incarnation: str) -> None:
        """What the agent would claim by its target."""
        target = self.tree.target(incarnation.partition("@")[0])
        for partition in target.partitions if target else ():
            claim_one(self.tree, incarnation, partition, self.tree.owned((partition,))[partition].version)

    def tick(self, sensor: str, cursor: str | None = None) -> dg.SensorResult | dg.SkipReason:
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            repository_def=self.repository,
            resources={"rota_zookeeper": ZooKeeperResource(hosts=self.hosts)},
        ) as context:
            return self.repository.get_sensor_def(sensor)(context)

    def membership(self) -> dg.SensorResult | dg.SkipReason:
        return self.tick(dagster_name(self.group, "membership"))

    def run(self, job: str, status: Status, **tags: str) -> dg.DagsterRun:
        given = {name.replace("__", "/"): value for name, value in tags.items()}
        return self.instance.create_run_for_job(self.repository.get_job(job), status=status, tags=given)


def cancel_check(instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, *keys: dg.AssetCheckKey) -> None:
    """A run that would evaluate these checks is cancelled before it starts: they are planned, and never evaluated."""
    job = repository.get_implicit_global_asset_job_def().get_subset(
        asset_selection=set(), asset_check_selection={*keys}
    )
    instance.report_run_canceled(instance.create_run_for_job(job))


def list_counted(instance: dg.DagsterInstance, specs: Iterable[dg.AssetCheckSpec]) -> set[str]:
    """The checks that the page does not call "Not Evaluated", as Dagster counts them."""
    records = {spec.name: instance.get_latest_asset_check_evaluation_record(spec.key) for spec in specs}
    return {
        name
        for name, one in records.items()
        if one and asyncio.run(one.targets_latest_materialization(LoadingContextForTest(instance)))
    }


def ready(desk: Desk) -> dict[str, str]:
    """Two workers that own what they should; worker -> incarnation."""
    desk.land("a", "b", "c")
    incarnations = {worker: desk.join(worker) for worker in ("w1", "w2")}
    desk.membership()
    rebalance(desk.tree, "r")
    for incarnation in incarnations.values():
        desk.own(incarnation)
    return incarnations
