"""Law: processes that found a group at once found the same one: one id, each partition once, and none of them fails."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from rota.catalog import Catalog, load
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.snapshot import read_basis
from rota.group.found import follow
from tests.conformance.processes import Start
from tests.waiting import wait_until

FOUNDERS, KEYS = 5, [f"k{number}" for number in range(300)]
FILE = """
from rota import Group, Pipeline, delta, files
group = Group({group!r}, protocol={protocol!r})
pipeline = Pipeline(
    source=files({land!r}, format="csv", schema="a int"), table=delta({table!r}), group={group!r}, requires={{"disk": "ssd"}}
)
"""


def declare(folder: Path, group: str, protocol: str) -> Catalog:
    (folder / "pipelines").mkdir()
    text = FILE.format(group=group, protocol=protocol, land=str(folder / "land"), table=str(folder / "table"))
    (folder / "pipelines" / "p.py").write_text(text)
    for key in KEYS:
        (folder / "land" / key).mkdir(parents=True)
    return load(folder / "pipelines")


@pytest.mark.parametrize("protocol", ["assigned", "claim"])
def test_five_at_once_found_one_group(
    protocol: str, tmp_path: Path, zookeeper: EmbeddedZooKeeper, group: str, start: Start
) -> None:
    catalog, gate = declare(tmp_path, group, protocol), Barrier(FOUNDERS)

    def found(_: int) -> tuple[str, dict[str, str]]:
        with connect(zookeeper.hosts) as store:
            gate.wait()
            said = follow(store, catalog, group)
            return GroupState(store, group).meta().id, dict(said.problems)

    with ThreadPoolExecutor(FOUNDERS) as pool:
        done = list(pool.map(found, range(FOUNDERS)))
    assert len({number for number, _ in done}) == 1
    assert [problems for _, problems in done] == [{}] * FOUNDERS
    with connect(zookeeper.hosts) as store:
        tree = GroupState(store, group)
        assert sorted(tree.ids()) == sorted(f"p:{key}" for key in KEYS)
        assert read_basis(tree).partitions["p"].requires == {"disk": "ssd"}
        if protocol == "assigned":
            return
        for worker in ("w1", "w2"):
            start(worker, "--no-spark", "--label", "disk=ssd")
        wait_until(lambda: sum(own.incarnation is not None for own in tree.owned().values()) == len(KEYS))
