"""Deciding and publishing over the tree: level, not edge; what is previewed is published; nothing new is no epoch."""

import math
from pathlib import Path

import pytest

from rota.catalog import Catalog, load
from rota.coordination.checkpoint import SMOOTHING
from rota.coordination.forget import forget_pipeline
from rota.coordination.group_state import GroupState
from rota.coordination.membership import join, leave
from rota.coordination.publication import take_control
from rota.coordination.records import GroupOverrides, Live, WorkerOverrides, encode
from rota.errors import Conflict
from rota.group.found import follow
from rota.group.rebalance import because, preview, rebalance
from simulator.memory_store import MemoryServer
from tests.measured import make_measured

FILE = """
from rota import Group, Pipeline, delta, files
pipeline = Pipeline(
    source=files("{landing}/{name}", format="csv", schema="a int"), table=delta("{landing}/t-{name}"), group="g"
)
{more}
"""


class GroupInMemory:
    """A group over a ZooKeeper in memory, its clock in hand; `workers` are the stores of the live workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.time = 1000.0
        self.server = MemoryServer(clock=lambda: self.time)
        self.store = self.server.connect()
        self.tree = GroupState(self.store, "g")
        self.workers: dict[str, tuple[GroupState, str]] = {}
        (folder / "pipelines").mkdir()
        self.declare("p")

    def declare(self, name: str, more: str = "") -> None:
        text = FILE.format(landing=self.folder, name=name, more=more)
        (self.folder / "pipelines" / f"{name}.py").write_text(text)
        (self.folder / name).mkdir(exist_ok=True)

    def load_catalog(self) -> Catalog:
        return load(self.folder / "pipelines")

    def add_keys(self, *keys: str, pipeline: str = "p") -> None:
        for key in keys:
            (self.folder / pipeline / key).mkdir(exist_ok=True)
            (self.folder / pipeline / key / "0.csv").write_text("1\n")

    def join(self, *workers: str) -> None:
        for worker in workers:
            tree = GroupState(self.server.connect(), "g")
            self.workers[worker] = tree, join(tree, worker, Live())

    def kill(self, worker: str) -> None:
        tree, _ = self.workers.pop(worker)
        self.server.expire(tree.store.session)

    def observe(self) -> object:
        return follow(self.store, self.load_catalog(), "g")

    def begin(self, letters: str, *workers: str) -> None:
        """The group is founded with a partition a letter, these workers join, and epoch 1 places all."""
        self.add_keys(*letters)
        self.observe()
        self.join(*workers)
        rebalance(self.tree, "r")

    def read_targets(self) -> dict[str, set[str]]:
        return {w: set(t.partitions) for w, t in self.tree.targets()[1].items() if t.partitions}


@pytest.fixture
def group(tmp_path: Path) -> GroupInMemory:
    return GroupInMemory(tmp_path)


def test_the_first_observation_founds_the_group_and_finds_what_is_there(group: GroupInMemory) -> None:
    group.add_keys("x", "y")
    seen = group.observe()
    assert (seen.needed, seen.keys) == (True, {"p": ("x", "y")})
    group.join("w1")
    assert group.observe().joined == ("w1",)
    done = rebalance(group.tree, "run-1")
    assert (done.epoch, done.published) == (1, True)
    assert done.sentence == "Epoch 1: w1 joined. 2 of 2 placed. Imbalance 1.00."
    assert group.read_targets() == {"w1": {"p:x", "p:y"}}
    seen = group.observe()
    assert (seen.needed, seen.reason) == (False, "1 worker, epoch 1 fits")


def test_a_worker_that_leaves_and_comes_back_is_seen_both_times(group: GroupInMemory) -> None:
    group.begin("abcd", "w1", "w2")
    group.kill("w2")
    assert group.observe().reason == "w2 left"
    gone = rebalance(group.tree, "r")
    assert gone.sentence == "Epoch 2: w2 left. 2 of 4 partitions moved (2 unavoidable). Imbalance 1.00."
    group.join("w2")
    assert group.observe().needed
    back = rebalance(group.tree, "r")
    assert back.sentence == "Epoch 3: w2 joined. 2 of 4 partitions moved (0 unavoidable). Imbalance 1.00."
    assert not group.observe().needed


def test_a_forgotten_pipeline_is_reported(group: GroupInMemory) -> None:
    group.declare("q")
    group.add_keys("a", "b")
    group.add_keys("c", pipeline="q")
    group.observe()
    group.join("w1")
    rebalance(group.tree, "r")
    forget_pipeline(group.tree, "q")
    said = rebalance(group.tree, "r").sentence
    assert said == "Epoch 2: pipeline q left the group. Nothing moved. Imbalance 1.00."


def test_a_restart_between_two_looks_moves_nothing_and_is_no_epoch(group: GroupInMemory) -> None:
    group.add_keys("a", "b")
    group.observe()
    group.join("w1", "w2")
    before = rebalance(group.tree, "r")
    group.kill("w2")
    group.join("w2")
    assert group.observe().needed
    done = rebalance(group.tree, "r")
    assert (done.published, done.epoch) == (False, before.epoch)
    assert done.sentence == "Epoch 1 is unchanged: w2 restarted. Nothing moved. Imbalance 1.00."
    assert not group.observe().needed


def test_a_rebalance_that_was_deposed_publishes_nothing_and_is_asked_for_again(
    group: GroupInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.add_keys("a")
    group.observe()
    group.join("w1")
    with monkeypatch.context() as patch:
        patch.setattr(
            "rota.group.rebalance.preview", lambda tree: (take_control(group.workers["w1"][0]), preview(tree))[1]
        )
        with pytest.raises(Conflict):
            rebalance(group.tree, "r")
    assert group.read_targets() == {}
    assert group.observe().needed
    assert rebalance(group.tree, "r").published


def test_what_is_previewed_is_published(group: GroupInMemory) -> None:
    group.add_keys(*"abcdefg")
    group.observe()
    group.join("w1", "w2", "w3")
    plan = preview(group.tree).plan
    rebalance(group.tree, "r")
    assert {w: set(held) for w, held in plan.assignment.as_dict().items()} == group.read_targets()


def test_new_folders_and_new_pipelines_are_new_partitions(group: GroupInMemory) -> None:
    group.begin("a", "w1")
    group.add_keys("b")
    group.declare("q")
    group.add_keys("z", pipeline="q")
    seen = group.observe()
    assert seen.needed
    assert seen.keys == {"p": ("a", "b"), "q": ("z",)}
    done = rebalance(group.tree, "r")
    came = "1 partition came to pipeline p, pipeline q came with 1 partition"
    assert done.sentence == f"Epoch 2: {came}. 2 of 3 placed. Imbalance 1.00."


def test_a_source_that_does_not_answer_stops_no_other(group: GroupInMemory) -> None:
    group.declare("q")
    text = (group.folder / "pipelines" / "q.py").read_text()
    (group.folder / "pipelines" / "q.py").write_text(text.replace(f"{group.folder}/q", "${NOT_SET_ANYWHERE}/q"))
    group.add_keys("a")
    seen = group.observe()
    assert "NOT_SET_ANYWHERE" in seen.problems["q"]
    assert seen.keys["p"] == ("a",)


def test_a_cordon_keeps_and_a_drain_empties(group: GroupInMemory) -> None:
    group.begin("ab", "w1", "w2")
    held = group.read_targets()
    path = group.tree.paths.worker("w1")
    group.tree.update(path, WorkerOverrides, lambda _: WorkerOverrides(cordoned=True))
    group.add_keys("c", "d")
    assert group.observe().needed
    rebalance(group.tree, "r")
    assert group.read_targets()["w1"] == held["w1"]
    group.tree.update(path, WorkerOverrides, lambda _: WorkerOverrides(draining=True))
    done = rebalance(group.tree, "r")
    assert "w1 is draining. 1 of 4 partitions moved (1 unavoidable)." in done.sentence
    assert group.read_targets() == {"w2": {"p:a", "p:b", "p:c", "p:d"}}


def test_a_pause_holds_back_what_need_not_move(group: GroupInMemory) -> None:
    group.begin("abcd", "w1")
    group.tree.update(group.tree.paths.overrides, GroupOverrides, lambda _: GroupOverrides(paused=True))
    group.join("w2")
    done = rebalance(group.tree, "r")
    assert not done.published
    assert group.read_targets() == {"w1": {"p:a", "p:b", "p:c", "p:d"}}
    group.tree.update(group.tree.paths.overrides, GroupOverrides, lambda _: GroupOverrides())
    assert group.observe().needed
    assert rebalance(group.tree, "r").plan.measures.moves == 2


def test_a_target_that_cannot_be_read_is_published_anew(group: GroupInMemory) -> None:
    group.add_keys("x", "y")
    group.observe()
    group.join("w1", "w2")
    rebalance(group.tree, "first")
    before = group.read_targets()
    group.store.set(group.tree.paths.assign("w1"), b"torn", -1)
    assert not group.observe().needed, "an observation without the targets does not find it"
    seen = follow(group.store, group.load_catalog(), "g", slots=True)
    assert (seen.needed, seen.reason) == (True, "the target of w1 cannot be read")
    rebalance(group.tree, "second")
    assert group.read_targets() == before
    assert not follow(group.store, group.load_catalog(), "g", slots=True).needed


def test_settings_of_the_file_reach_the_group_and_grace_is_looked_at_again(group: GroupInMemory) -> None:
    group.declare("p", more='group = Group("g", grace=60.0)')
    group.begin("ab", "w1", "w2")
    group.kill("w2")
    waiting = rebalance(group.tree, "r")
    assert "may return" in waiting.sentence
    assert not group.observe().needed
    group.time += 61
    seen = group.observe()
    assert (seen.needed, seen.reason) == (True, "it is time to look again")
    rebalance(group.tree, "r")
    assert group.read_targets() == {"w1": {"p:a", "p:b"}}


def test_no_owner_is_an_answer_too(group: GroupInMemory) -> None:
    group.begin("a", "w1")
    group.kill("w1")
    done = rebalance(group.tree, "r")
    assert done.published
    assert "w1 left" in done.sentence
    assert "1 of 1 wait" in done.sentence
    assert group.read_targets() == {}
    assert not group.observe().needed


def test_a_worker_that_signs_off_is_drained_first(group: GroupInMemory) -> None:
    group.begin("ab", "w1", "w2")
    tree, incarnation = group.workers["w2"]
    tree.store.set(tree.paths.live(incarnation), encode(Live(leaving=True)), -1)
    assert group.observe().needed
    rebalance(group.tree, "r")
    assert group.read_targets() == {"w1": {"p:a", "p:b"}}
    leave(tree, incarnation)
    assert not rebalance(group.tree, "r").published


def test_what_runs_measured_is_the_load_of_the_next_decision(group: GroupInMemory) -> None:
    """Of the moment: it was as old as the last rebalance, which may be a day."""
    group.begin("abc", "w1")
    for key, rate in (("a", 15.0), ("b", 5.0)):
        record = make_measured(rate, group.time)
        group.store.create(group.tree.paths.checkpoint(f"p:{key}"), encode(record))
    assert not group.observe().needed, "a measure is no reason to rebalance"
    assert rebalance(group.tree, "r").plan.assignment.snapshot.load.tolist() == [15.0, 5.0, 10.0]
    group.time += SMOOTHING
    faded = rebalance(group.tree, "r").plan.assignment.snapshot.load.tolist()
    assert faded == pytest.approx([15.0 / math.e, 5.0 / math.e, 10.0 / math.e])


def test_the_words_of_coming_and_going() -> None:
    assert because(["w1"], ["w1", "w2"], "-") == "w2 left, w1 restarted"
    assert because([f"w{i}" for i in range(8)], [], "-") == "w0, w1, w2, w3, w4 and 3 more joined"
    assert because([], [], "looked again") == "looked again"
