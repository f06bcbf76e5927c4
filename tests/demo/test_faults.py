"""The demo's kill is of a worker in the middle of a batch, or it says that it came too late. Over a group in memory."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rota.coordination import membership, ownership
from rota.coordination.group_state import GroupState
from rota.coordination.memory import MemoryServer
from rota.coordination.records import Live
from rota.demo.faults import KilledTooLate, KillFigures, kill_worker
from rota.demo.observer import Observer
from rota.errors import EnvironmentFailed
from rota.local.page import DagsterPage
from tests.conformance.targets import found_with

PARTITION, LATE, NEXT = "p:a", "r1-0", "r2-0"  # a partition, and the attempts of w1's run and of w2's


class EmptyPage(DagsterPage):
    """Dagster has no run."""

    def read_runs(self) -> dict[str, object]:  # type: ignore[override]
        return {}


@dataclass
class Place:
    """A group of w1, whose run writes a batch, and w2; the table's log; and the stack, in which a worker takes its time to
    die: meanwhile the attempts `meanwhile` are committed."""

    folder: Path
    meanwhile: Iterable[str] = ()
    children: dict[str, object] = field(default_factory=lambda: {"w1": None, "w2": None})
    version: int = 0

    def __post_init__(self) -> None:
        tree = found_with(GroupState(MemoryServer().connect(), "default"), [PARTITION])
        self.w1 = membership.join(tree, "w1", Live())
        ownership.claim(tree, self.w1, PARTITION, tree.owned()[PARTITION].version)
        membership.register_run(tree, "r1", self.w1, [PARTITION])
        (self.folder / "data" / LATE).mkdir(parents=True)
        (self.folder / "_delta_log").mkdir()
        self.observer = Observer(tree, self.folder)

    def commit(self, attempt: str, start: int) -> None:
        """The next version of the log: one file more of the partition."""
        said = {"rota.run": attempt.partition("-")[0], "rota.attempt": attempt}
        said["rota.ranges"] = json.dumps({PARTITION: [start, start + 1]})
        line = json.dumps({"commitInfo": {"timestamp": int((time.time() + 1) * 1000), **said}})
        (self.folder / "_delta_log" / f"{self.version:020}.json").write_text(line)
        self.version += 1

    def kill(self, name: str) -> None:
        del self.children[name]
        for start, attempt in enumerate(self.meanwhile):
            self.commit(attempt, start)

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


def test_without_the_second_look_a_kill_after_a_commit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ablation: what the log says after the kill is not asked."""
    place = Place(tmp_path, [LATE, NEXT])
    monkeypatch.setattr(Observer, "has_committed", lambda *_: False)
    killed = place.play()
    assert killed.run_id == "r1"
    assert LATE in [commit.attempt for commit in place.observer.commits], "the batch that it says was interrupted"
