"""Deciding and publishing over the tree: level, not edge; what is previewed is published; nothing new is no epoch."""

from pathlib import Path

import pytest

from rota.catalog import Catalog, load
from rota.coordination.forget import forget_pipeline
from rota.coordination.group_state import GroupState
from rota.coordination.membership import join, leave
from rota.coordination.memory import MemoryServer
from rota.coordination.publication import take_control
from rota.coordination.records import Checkpoint, GroupOverrides, Live, Loads, WorkerOverrides, encode
from rota.errors import Conflict
from rota.rebalance import because, folded, observe, preview, rebalance

FILE = """
from rota import Group, Pipeline, delta, files
pipeline = Pipeline(
    source=files("{landing}/{name}", format="csv", schema="a int"), table=delta("{landing}/t-{name}"), group="g"
)
{more}
"""


class Bench:
    """A group over a ZooKeeper in memory, its clock in hand; `workers` are the stores of those who are live."""

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

    def catalog(self) -> Catalog:
        return load(self.folder / "pipelines")

    def keys(self, *keys: str, pipeline: str = "p") -> None:
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

    def look(self) -> object:
        return observe(self.store, self.catalog(), "g")

    def begin(self, letters: str, *workers: str) -> None:
        """The group is founded with a partition a letter, these workers join, and epoch 1 places all."""
        self.keys(*letters)
        self.look()
        self.join(*workers)
        rebalance(self.tree, "r")

    def held(self) -> dict[str, set[str]]:
        return {w: set(t.partitions) for w, t in self.tree.targets()[1].items() if t.partitions}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_first_look_founds_the_group_and_finds_what_is_there(bench: Bench) -> None:
    bench.keys("x", "y")
    seen = bench.look()
    assert (seen.needed, seen.keys) == (True, {"p": ("x", "y")})
    bench.join("w1")
    assert bench.look().joined == ("w1",)
    done = rebalance(bench.tree, "run-1")
    assert (done.epoch, done.published) == (1, True)
    assert done.sentence == "Epoch 1: w1 joined. 2 of 2 placed. Imbalance 1.00."
    assert bench.held() == {"w1": {"p:x", "p:y"}}
    seen = bench.look()
    assert (seen.needed, seen.reason) == (False, "1 workers, epoch 1 fits")


def test_who_leaves_and_comes_back_is_seen_both_times(bench: Bench) -> None:
    bench.begin("abcd", "w1", "w2")
    bench.kill("w2")
    assert bench.look().reason == "w2 left"
    gone = rebalance(bench.tree, "r")
    assert gone.sentence == "Epoch 2: w2 left. 2 of 4 partitions moved, 2 had to. Imbalance 1.00."
    bench.join("w2")
    assert bench.look().needed
    back = rebalance(bench.tree, "r")
    assert back.sentence == "Epoch 3: w2 joined. 2 of 4 partitions moved, none had to. Imbalance 1.00."
    assert not bench.look().needed


def test_partitions_that_were_forgotten_are_said_to_have_left(bench: Bench) -> None:
    bench.declare("q")
    bench.keys("a", "b")
    bench.keys("c", pipeline="q")
    bench.look()
    bench.join("w1")
    rebalance(bench.tree, "r")
    forget_pipeline(bench.tree, "q")
    said = rebalance(bench.tree, "r").sentence
    assert said == "Epoch 2: 1 partition left the group. Nothing moved. Imbalance 1.00."


def test_a_restart_between_two_looks_moves_nothing_and_is_no_epoch(bench: Bench) -> None:
    bench.keys("a", "b")
    bench.look()
    bench.join("w1", "w2")
    before = rebalance(bench.tree, "r")
    bench.kill("w2")
    bench.join("w2")
    assert bench.look().needed
    done = rebalance(bench.tree, "r")
    assert (done.published, done.epoch) == (False, before.epoch)
    assert done.sentence == "Epoch 1 stands: w2 restarted. Nothing moved. Imbalance 1.00."
    assert not bench.look().needed


def test_a_rebalance_that_was_deposed_publishes_nothing_and_is_asked_for_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.keys("a")
    bench.look()
    bench.join("w1")
    with monkeypatch.context() as patch:
        patch.setattr("rota.rebalance.preview", lambda tree: (take_control(bench.workers["w1"][0]), preview(tree))[1])
        with pytest.raises(Conflict):
            rebalance(bench.tree, "r")
    assert bench.held() == {}
    assert bench.look().needed
    assert rebalance(bench.tree, "r").published


def test_what_is_previewed_is_published(bench: Bench) -> None:
    bench.keys(*"abcdefg")
    bench.look()
    bench.join("w1", "w2", "w3")
    plan = preview(bench.tree).plan
    rebalance(bench.tree, "r")
    assert {w: set(held) for w, held in plan.assignment.as_dict().items()} == bench.held()


def test_new_folders_and_new_pipelines_are_new_partitions(bench: Bench) -> None:
    bench.begin("a", "w1")
    bench.keys("b")
    bench.declare("q")
    bench.keys("z", pipeline="q")
    seen = bench.look()
    assert seen.needed
    assert seen.keys == {"p": ("a", "b"), "q": ("z",)}
    done = rebalance(bench.tree, "r")
    assert done.sentence == "Epoch 2: 2 partitions had nobody. 2 of 3 placed. Imbalance 1.00."


def test_a_source_that_cannot_be_asked_stops_nobody_else(bench: Bench) -> None:
    bench.declare("q")
    text = (bench.folder / "pipelines" / "q.py").read_text()
    (bench.folder / "pipelines" / "q.py").write_text(text.replace(f"{bench.folder}/q", "${NOT_SET_ANYWHERE}/q"))
    bench.keys("a")
    seen = bench.look()
    assert "NOT_SET_ANYWHERE" in seen.problems["q"]
    assert seen.keys["p"] == ("a",)


def test_a_cordon_keeps_and_a_drain_empties(bench: Bench) -> None:
    bench.begin("ab", "w1", "w2")
    held = bench.held()
    path = bench.tree.paths.worker("w1")
    bench.tree.update(path, WorkerOverrides, lambda _: WorkerOverrides(cordoned=True))
    bench.keys("c", "d")
    assert bench.look().needed
    rebalance(bench.tree, "r")
    assert bench.held()["w1"] == held["w1"]
    bench.tree.update(path, WorkerOverrides, lambda _: WorkerOverrides(draining=True))
    done = rebalance(bench.tree, "r")
    assert "w1 is draining. 1 of 4 partitions moved, 1 had to." in done.sentence
    assert bench.held() == {"w2": {"p:a", "p:b", "p:c", "p:d"}}


def test_a_pause_holds_back_what_need_not_move(bench: Bench) -> None:
    bench.begin("abcd", "w1")
    bench.tree.update(bench.tree.paths.overrides, GroupOverrides, lambda _: GroupOverrides(paused=True))
    bench.join("w2")
    done = rebalance(bench.tree, "r")
    assert not done.published
    assert bench.held() == {"w1": {"p:a", "p:b", "p:c", "p:d"}}
    bench.tree.update(bench.tree.paths.overrides, GroupOverrides, lambda _: GroupOverrides())
    assert bench.look().needed
    assert rebalance(bench.tree, "r").plan.measures.moves == 2


def test_a_target_that_cannot_be_read_is_published_anew(bench: Bench) -> None:
    bench.keys("x", "y")
    bench.look()
    bench.join("w1", "w2")
    rebalance(bench.tree, "first")
    before = bench.held()
    bench.store.set(bench.tree.paths.assign("w1"), b"torn", -1)
    assert not bench.look().needed, "a cheap look does not see it"
    seen = observe(bench.store, bench.catalog(), "g", slots=True)
    assert (seen.needed, seen.reason) == (True, "the target of w1 cannot be read")
    rebalance(bench.tree, "second")
    assert bench.held() == before
    assert not observe(bench.store, bench.catalog(), "g", slots=True).needed


def test_settings_of_the_file_reach_the_group_and_grace_is_looked_at_again(bench: Bench) -> None:
    bench.declare("p", more='group = Group("g", grace=60.0)')
    bench.begin("ab", "w1", "w2")
    bench.kill("w2")
    waiting = rebalance(bench.tree, "r")
    assert "may return" in waiting.sentence
    assert not bench.look().needed
    bench.time += 61
    seen = bench.look()
    assert (seen.needed, seen.reason) == (True, "it is time to look again")
    rebalance(bench.tree, "r")
    assert bench.held() == {"w1": {"p:a", "p:b"}}


def test_nobody_is_an_answer_too(bench: Bench) -> None:
    bench.begin("a", "w1")
    bench.kill("w1")
    done = rebalance(bench.tree, "r")
    assert done.published
    assert "w1 left" in done.sentence
    assert "1 of 1 wait" in done.sentence
    assert bench.held() == {}
    assert not bench.look().needed


def test_who_says_goodbye_is_drained_first(bench: Bench) -> None:
    bench.begin("ab", "w1", "w2")
    tree, incarnation = bench.workers["w2"]
    tree.store.set(tree.paths.live(incarnation), encode(Live(leaving=True)), -1)
    assert bench.look().needed
    rebalance(bench.tree, "r")
    assert bench.held() == {"w1": {"p:a", "p:b"}}
    leave(tree, incarnation)
    assert not rebalance(bench.tree, "r").published


def test_what_runs_record_becomes_load_once(bench: Bench) -> None:
    bench.begin("ab", "w1")
    for key, rows in (("a", 9000), ("b", 3000)):
        record = Checkpoint(offset=1, token=1, run_id="r", rows=rows, seconds=1.0)
        bench.store.create(bench.tree.paths.checkpoint(f"p:{key}"), encode(record))
    rebalance(bench.tree, "r")
    rates = bench.tree.loads()["p"].record.rates
    assert rates["a"] == 3 * rates["b"] == 15.0
    rebalance(bench.tree, "r")
    assert bench.tree.loads()["p"].record.rates == rates
    done = rebalance(bench.tree, "r")
    assert done.imbalance["count"] == 1.0
    assert done.plan.assignment.snapshot.load.tolist() == [15.0, 5.0]


def test_old_loads_fade_and_a_report_is_no_membership_change(bench: Bench) -> None:
    loads = folded(Loads(), {"a": (6000, 7)}, 0)
    assert loads == Loads(rates={"a": 10.0}, upto=7)
    later = folded(loads, {"a": (6000, 7)}, 600)
    assert later.upto == 7
    assert 3.6 < later.rates["a"] < 3.7
    bench.keys("a")
    bench.look()
    rebalance(bench.tree, "r")
    bench.store.create(bench.tree.paths.load("p"), encode(loads))
    assert not bench.look().needed


def test_the_words_of_coming_and_going() -> None:
    assert because(["w1"], ["w1", "w2"], "-") == "w2 left, w1 restarted"
    assert because([f"w{i}" for i in range(8)], [], "-") == "w0, w1, w2, w3, w4 and 3 more joined"
    assert because([], [], "looked again") == "looked again"
