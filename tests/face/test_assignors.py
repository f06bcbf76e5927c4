"""Every assignor and every option of the protocol's table, through Dagster on a real ZooKeeper: the declaration is changed,
the asset `<group>/assignment` is materialized, and what the group gets is another."""

import inspect
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rota.catalog import load
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.membership import join
from rota.coordination.publication import Publication, publish, take_control
from rota.coordination.records import Live
from rota.core.assignors import ASSIGNORS
from rota.core.assignors.baselines import memoryless
from rota.core.assignors.pulsar import avg_shed, older_shedders
from rota.core.assignors.sticky_load import assignor as sticky_load
from rota.dagster.assets.names import Names
from rota.dagster.location import compose
from rota.group.found import follow
from tests.measured import make_measured

names = Names()

FILE = """
from rota import Group, Pipeline, delta, files
group = Group("{group}", assignor="{assignor}", options={options})
pipeline = Pipeline(
    source=files("{folder}/p", format="json", schema="n int", settle=0), table=delta("{folder}/t"), group="{group}",
)
"""
SCORES = {"w1": 0.9, "w2": 0.55, "w3": 0.2}
RATES = {  # rows a second of each partition of each worker: in proportion to its score
    "w1": (4000.0, 2500.0, 1500.0, 1000.0),
    "w2": (1375.0, 1375.0, 1375.0, 1375.0),
    "w3": (700.0, 700.0, 600.0),
}


class BusyGroup:
    """One group of three workers, with the loads of `SCORES`, and Dagster's job for it."""

    def __init__(self, hosts: str, folder: Path, instance: dg.DagsterInstance) -> None:
        self.folder, self.instance = folder, instance
        self.group = f"g{uuid.uuid4().hex[:8]}"
        keys = iter(range(11))
        self.start = {w: {f"k{next(keys):02}": rate for rate in rates} for w, rates in reversed(RATES.items())}
        (folder / "pipelines").mkdir()
        for held in self.start.values():
            for key in held:
                (folder / "p" / key).mkdir(parents=True)
                (folder / "p" / key / "0.json").write_text('{"n": 1}\n')
        self.stores = [connect(hosts, 10) for _ in range(4)]
        self.tree = GroupState(self.stores[0], self.group)
        self.declare("sticky", {})
        for store, (worker, busy) in zip(self.stores[1:], SCORES.items(), strict=True):
            usage = {"cpu": busy, "rate": busy * 1e4, "throughput": busy * 1e7}
            join(GroupState(store, self.group), worker, Live(usage=usage))
        self.found: dict[str, dict[str, set[str]]] = {}  # by what the file said
        self.job = compose(load(folder / "pipelines")).get_repository_def().get_job(names.rebalance_job(self.group))

    def measure(self) -> None:
        """What each partition carries, measured just now: of what was measured long ago less is taken."""
        for key, rate in (one for held in self.start.values() for one in held.items()):
            self.tree.put(self.tree.paths.checkpoint(f"p:{key}"), make_measured(rate, self.stores[0].now()))

    def declare(self, assignor: str, options: Mapping[str, Any]) -> None:
        """What the user does: the file of the group names another assignor, and the sensor polls."""
        text = FILE.format(group=self.group, assignor=assignor, options=dict(options), folder=self.folder)
        (self.folder / "pipelines" / "p.py").write_text(text)
        follow(self.stores[0], load(self.folder / "pipelines"), self.group)

    def rebalance(self, assignor: str, options: Mapping[str, Any], memory: Mapping[str, Any]) -> dict[str, set[str]]:
        """What ZooKeeper holds for each worker after one materialization, from the same start. A declaration leads to one
        assignment, so each is materialized once."""
        said = f"{assignor} {dict(options)} {dict(memory)}"
        if said in self.found:
            return self.found[said]
        start = {w: frozenset(f"p:{key}" for key in held) for w, held in self.start.items()}
        publish(self.tree, take_control(self.tree), Publication(start, memory={assignor: memory} if memory else {}))
        self.declare(assignor, options)
        self.measure()
        result = self.job.execute_in_process(instance=self.instance)
        assert result.success
        _, targets = self.tree.targets()
        self.found[said] = {w: set(t.partitions) for w, t in targets.items()}
        return self.found[said]


@pytest.fixture(scope="module")
def group(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusyGroup]:
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("ROTA_ZOOKEEPER", zookeeper.hosts)
        group = BusyGroup(zookeeper.hosts, tmp_path_factory.mktemp("assignors"), instance)
        yield group
        for store in group.stores:
            store.close()


@dataclass(frozen=True)
class Case:
    """An option, what it is changed to, the other options, and what earlier rounds left."""

    assignor: str
    option: str
    value: Any
    others: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)


SOON = {"hits_high": 1}  # avg-shed acts in the first round
# A live group records rows only, and they stand for the bytes: `min_throughput` is in rows here.
CASES = [
    Case("sticky-load", "budget", 1),
    Case("sticky-load", "tolerance", 3.0),
    Case("sticky-load", "move_price", 0.9),
    Case("avg-shed", "low", 80, SOON),
    Case("avg-shed", "high", 80, SOON),
    Case("avg-shed", "hits_low", 1),
    Case("avg-shed", "hits_high", 1),
    Case("avg-shed", "share", 0.5, SOON),
    Case("avg-shed", "min_rate", 2000, SOON | {"min_throughput": 1e9}),
    Case("avg-shed", "min_throughput", 100, SOON | {"min_rate": 2000}),
    Case("avg-shed", "immune_rounds", 1, SOON, {"moved": {"p:k10": 1}, "round": 1}),
    Case("avg-shed", "weights", {"cpu": 0.1}, SOON),
    Case("threshold-shed", "threshold", 40),
    Case("threshold-shed", "history", 0.0, {}, {"usage": dict.fromkeys(SCORES, 55)}),
    Case("threshold-shed", "min_throughput", 1e9),
    Case("uniform-shed", "threshold", 60, {"share": 1.0}),
    Case("uniform-shed", "rate_percent", 400),
    Case("uniform-shed", "throughput_ratio", 5, {"rate_percent": 400, "min_throughput": 0}),
    Case("uniform-shed", "share", 0.5),
    Case("uniform-shed", "min_rate", 2000),
    Case("uniform-shed", "min_throughput", 100, {"rate_percent": 400}),
    Case("ordinal", "spread", True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.assignor}-{case.option}")
def test_a_changed_option_is_another_assignment(group: BusyGroup, case: Case) -> None:
    before = group.rebalance(case.assignor, case.others, case.memory)
    after = group.rebalance(case.assignor, {**case.others, case.option: case.value}, case.memory)
    everything = {f"p:{key}" for held in group.start.values() for key in held}
    for held in (before, after):
        assert set().union(*held.values()) == everything
        assert sum(map(len, held.values())) == len(everything)
    assert before != after


@pytest.mark.parametrize("assignor", sorted(set(ASSIGNORS) - {"sticky"}))
def test_another_assignor_is_another_assignment(group: BusyGroup, assignor: str) -> None:
    others = SOON if assignor == "avg-shed" else {}
    assert group.rebalance("sticky", {}, {}) != group.rebalance(assignor, others, {})


def test_every_option_there_is_has_a_case() -> None:
    """Those of the tables are the options that the assignors read."""
    known = {(case.assignor, case.option) for case in CASES}
    protocol = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    documented = {
        (row.split("|")[1].strip(" `"), option)
        for row in protocol.splitlines()
        if row.startswith(("| `sticky-load`", "| `avg-shed`", "| `threshold-shed`", "| `uniform-shed`", "| `ordinal`"))
        for option in list_options(row.split("|")[2])
    }
    read = {
        *(("sticky-load", o) for o in sticky_load.OPTIONS),
        *(("avg-shed", o) for o in [*avg_shed.OPTIONS, "weights"]),
        *(("threshold-shed", o) for o in list_read_options(older_shedders.assign_by_threshold)),
        *(("uniform-shed", o) for o in list_read_options(older_shedders.assign_by_extremes)),
        *(("ordinal", o) for o in list_read_options(memoryless.assign_ordinal)),
    }
    assert known == documented == read


def list_options(cell: str) -> list[str]:
    return [word for word in cell.split("`")[1::2] if word not in {"cpu", "memory", "bandwidth_in", "bandwidth_out"}]


def list_read_options(function: Any) -> list[str]:
    return [part.rpartition('"')[2] for part in inspect.getsource(function).split('": Option(')[:-1]]
