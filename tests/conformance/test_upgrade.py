"""This build and one from the future in one group, on a real ZooKeeper: in any order of workers, Dagster and commands
nothing is lost, and after the level was raised this build is refused."""

import json
import signal
import zlib
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path

import pytest

from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.errors import ConfigError
from tests.conformance.future_build import FIELD, VERSION, Build, ThisBuild, make_future_build, open_build
from tests.conformance.processes import Start, Worker
from tests.conformance.targets import owners
from tests.demo.json_keys import documented, held
from tests.waiting import wait_until

KEYS = ("1", "2", "3", "4")
WORKERS, DAGSTER, COMMANDS = "workers", "Dagster", "commands"
OVERRIDES = (
    ("cordon", "w1"), ("uncordon", "w1"), ("pin", "s:1", "w1"), ("pause",), ("resume",), ("pin", "s:1", "--clear"),
)  # fmt: skip


@pytest.fixture(scope="session")
def future(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_future_build(tmp_path_factory.mktemp("future"))


@pytest.fixture
def newer(future: Path, zookeeper: EmbeddedZooKeeper, real: GroupState) -> Iterator[Build]:
    with open_build(future, zookeeper.hosts, real.group) as build:
        yield build


@pytest.fixture
def tree(real: GroupState, zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch) -> GroupState:
    monkeypatch.setenv("ROTA_ZOOKEEPER", zookeeper.hosts)
    real.grow("s", KEYS)
    return real


class Upgrade:
    """A group whose parts are replaced one after the other; it consumes and balances meanwhile."""

    def __init__(self, tree: GroupState, start: Start, builds: Sequence[Build], folders: Sequence[Path | None]) -> None:
        self.tree, self.start, self.builds, self.folders = tree, start, builds, folders
        self.at = dict.fromkeys((WORKERS, DAGSTER, COMMANDS), 0)
        self.workers: dict[str, Worker] = {}
        self.consumed = 0

    def begin(self) -> None:
        for name in ("w1", "w2"):
            self.add(name)
        self.work()

    def add(self, name: str) -> None:
        folder = self.folders[self.at[WORKERS]]
        self.workers[name] = self.start(name, "--no-spark", anew=True, **({"root": folder} if folder else {}))
        self.workers[name].hears("event=joined")

    def replace(self, part: str, build: int) -> None:
        """Replace the part; workers one by one, and the group works before the next."""
        self.at[part] = build
        for name in self.workers if part == WORKERS else ():
            self.workers[name].signal(signal.SIGTERM)
            wait_until(lambda name=name: self.workers[name].process.poll() is not None or self.balance())  # type: ignore[misc]
            assert self.workers[name].ends() == 0
            self.add(name)
            self.work()
        self.work()

    def balance(self) -> None:
        self.builds[self.at[DAGSTER]].rebalance()

    def work(self) -> None:
        """Each partition has an owner, is consumed once more, and an operator changes what may be changed."""
        self.balance()
        wait_until(lambda: sorted(owners(self.tree).values()) == ["w1", "w1", "w2", "w2"])
        self.consumed += 1
        offsets = self.builds[self.at[DAGSTER]].consume()
        assert offsets == {f"s:{key}": self.consumed for key in KEYS}, "none lost, none twice"
        commands = self.builds[self.at[COMMANDS]]
        for words in OVERRIDES:
            code, said = commands.command(*words)
            assert code == 0, said
        code, said = commands.command("upgrade", "--json")
        assert code == 0, said
        assert [one["kind"] for one in json.loads(said)["processes"]] == ["worker", "worker", "controller"]
        assert not self.tree.unreadable


def read_field(tree: GroupState, name: str) -> object:
    """What the record states in the field of the future."""
    node = tree.store.get(f"{tree.paths.root}/{name}")
    assert node is not None
    data = zlib.decompress(node.data) if node.data.startswith(b"x") else node.data.partition(b"\n")[0]
    return json.loads(data).get(FIELD)


def snap(tree: GroupState) -> dict[str, object]:
    """Every node of the group but those of the workers, which report their usage."""
    folders = [f"{tree.paths.root}/{name}" for name in tree.store.children(tree.paths.root) if name != "live"]
    paths = [*folders, *(f"{folder}/{name}" for folder in folders for name in tree.store.children(folder))]
    return dict(zip(paths, tree.store.get_many(paths), strict=True))


@pytest.mark.parametrize("order", [*permutations((WORKERS, DAGSTER, COMMANDS))], ids="-".join)
def test_in_any_order_nothing_is_lost_and_each_part_may_go_back(
    order: Sequence[str], tree: GroupState, start: Start, newer: Build, future: Path
) -> None:
    group = Upgrade(tree, start, (ThisBuild(tree), newer), (None, future))
    group.begin()
    for part in order:
        group.replace(part, 1)
    kept = ("overrides", "workers/w1", "controller", *(f"checkpoints/s:{key}" for key in KEYS))
    assert {name: read_field(tree, name) for name in kept} == dict.fromkeys(kept, VERSION)
    for part in order:
        group.replace(part, 0)
    assert {name: read_field(tree, name) for name in kept} == dict.fromkeys(kept, VERSION), (
        "this build wrote them again"
    )
    assert tree.meta().level == 1


def test_the_level_is_raised_once_all_reach_it_and_then_this_build_is_refused(
    tree: GroupState, start: Start, newer: Build, future: Path
) -> None:
    this = ThisBuild(tree)
    group = Upgrade(tree, start, (this, newer), (None, future))
    group.begin()
    code, said = this.command("upgrade", "--finalize")
    assert (code, "is at level 1" in said) == (0, True), "it has no more levels"
    late = newer.command("upgrade", "--finalize", "--json")
    assert late[0] == 1
    found = json.loads(late[1])
    assert set(held(found, documented("upgrade"))) == documented("upgrade")
    assert (found["level"], found["floor"], found["reads_to"]) == (1, 1, 2)
    assert found["step"] == f"Too old for level 2: 3. Replace, then: rota upgrade --finalize --group {tree.group}"
    assert {one["build"] for one in found["processes"]} == {tree.levels.build}
    for part in (DAGSTER, WORKERS, COMMANDS):
        group.replace(part, 1)
    code, said = newer.command("upgrade", "--finalize")
    assert code == 0, said
    before = snap(tree)
    line = f"Group '{tree.group}' is at level 2, and rota {tree.levels.build} reads and writes level 1. "
    line += f"Nothing was written. Install rota {VERSION} or newer"
    for refused in (lambda: this.rebalance(), lambda: this.consume()):
        with pytest.raises(ConfigError) as error:
            refused()
        assert str(error.value) == line
    for words in (("pause",), ("cordon", "w1"), ("status",), ("repair",), ("upgrade", "--finalize")):
        assert this.command(*words) == (2, line), words
    old = start("w3", "--no-spark", anew=True)
    assert old.ends() == 2
    assert old.said("Group ")[-1].replace("\n", " ").endswith(line), old.log.read_text()
    assert snap(tree) == before
    newer.rebalance()
    assert newer.consume() == {f"s:{key}": group.consumed + 1 for key in KEYS}
