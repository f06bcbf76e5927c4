"""The demo's kill is of a worker in the middle of a batch; one that comes too late is followed by another.

Over a group in memory."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rota.coordination import membership
from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.demo.faults import KilledTooLate, KillFigures, kill_worker
from rota.demo.observer import Observer
from rota.demo.scenario import Scenario
from rota.errors import EnvironmentFailed
from rota.local.flights import NewFiles
from rota.local.page import DagsterPage
from rota.local.storage import open_folder
from simulator.memory_store import MemoryServer
from tests.claiming import claim_one
from tests.conformance.targets import found_with

# a partition, and the attempts of w1's run, of w2's, and of the worker that joins
PARTITION, LATE, NEXT, THIRD = "p:a", "r1-0", "r2-0", "r3-0"


class EmptyPage(DagsterPage):
    """Dagster has no run."""

    def read_runs(self) -> dict[str, object]:  # type: ignore[override]
        return {}


@dataclass
class Place:
    """A group of w1, whose run writes a batch, and w2; the table's log; and the stack, in which a worker takes its time to
    die: meanwhile the attempts `meanwhile` are committed, and `later` while the next one dies. The worker that joins has at
    once the partition and a run that writes a batch."""

    folder: Path
    meanwhile: Iterable[str] = ()
    later: Iterable[str] = ()
    children: dict[str, object] = field(default_factory=lambda: {"w1": None, "w2": None})
    version: int = 0
    months: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        tree = found_with(GroupState(MemoryServer().connect(), "default"), [PARTITION])
        (self.folder / "_delta_log").mkdir()
        self.observer = Observer(tree, open_folder(self.folder))
        self.begin("w1", LATE)

    def begin(self, name: str, attempt: str) -> None:
        """A worker joins, claims the partition, and its run writes a batch."""
        tree = self.observer.tree
        incarnation = membership.join(tree, name, Live())
        claim_one(tree, incarnation, PARTITION, tree.owned()[PARTITION].version)
        membership.register_run(tree, attempt.partition("-")[0], incarnation, [PARTITION])
        (self.folder / "data" / attempt).mkdir(parents=True)

    def commit(self, attempt: str, start: int) -> None:
        """The next version of the log: one file more of the partition."""
        said = {"rota.run": attempt.partition("-")[0], "rota.attempt": attempt}
        said["rota.ranges"] = json.dumps({PARTITION: [start, start + 1]})
        line = json.dumps({"commitInfo": {"timestamp": int((time.time() + 1) * 1000), **said}})
        (self.folder / "_delta_log" / f"{self.version:020}.json").write_text(line)
        self.version += 1

    def kill(self, name: str) -> None:
        del self.children[name]
        for attempt in self.meanwhile:
            self.commit(attempt, self.version)
        self.meanwhile = self.later

    def start_worker(self, name: str) -> None:
        self.children[name] = None
        self.begin(name, THIRD)

    def land(self, months: Iterable[int]) -> NewFiles:
        self.months += months
        return NewFiles((), 0)

    def play(self) -> KillFigures:
        return kill_worker(self, self.observer, EmptyPage("http://nowhere"))  # type: ignore[arg-type]


def test_a_kill_in_the_middle_of_a_batch_is_followed_to_the_next_commit(tmp_path: Path) -> None:
    killed = Place(tmp_path, [NEXT]).play()
    assert (killed.worker, killed.run_id, killed.partitions) == ("w1", "r1", (PARTITION,))


def test_a_kill_that_came_too_late_is_said_and_is_none(tmp_path: Path) -> None:
    place = Place(tmp_path, [LATE, NEXT])
    with pytest.raises(KilledTooLate, match=r"Run r1 committed before its worker w1 was dead\. Run the demo again"):
        place.play()
    assert issubclass(KilledTooLate, EnvironmentFailed), "the demo ends with this line"


def test_after_a_kill_that_came_too_late_another_joins_and_it_is_tried_again(tmp_path: Path) -> None:
    place = Place(tmp_path, [LATE, NEXT], [NEXT])
    said: list[str] = []
    page = EmptyPage("http://nowhere")
    scenario = Scenario(place, place, place.observer, page, said.append, month=11)  # type: ignore[arg-type]
    killed = scenario.kill_in_batch()
    assert (killed.worker, killed.run_id, place.months) == ("w2", "r3", [12])
    assert said[0] == "a worker was killed too late for its batch: another joins for the next try"


def test_a_kill_that_came_too_late_in_the_last_month_ends_the_demo(tmp_path: Path) -> None:
    place = Place(tmp_path, [LATE, NEXT])
    page = EmptyPage("http://nowhere")
    with pytest.raises(KilledTooLate):
        Scenario(place, place, place.observer, page, print, month=12).kill_in_batch()  # type: ignore[arg-type]
    assert not place.months


def test_without_the_second_look_a_kill_after_a_commit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ablation: the log is not read after the kill."""
    place = Place(tmp_path, [LATE, NEXT])
    monkeypatch.setattr(Observer, "has_committed", lambda *_: False)
    killed = place.play()
    assert killed.run_id == "r1"
    assert LATE in [commit.attempt for commit in place.observer.commits], "the batch that it reports as interrupted"
