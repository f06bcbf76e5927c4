"""A run that awaits its first partitions does a job of its pipeline, and leaves nothing of it."""

from typing import Any

import pytest

from rota.dataplane.spark import spark_job, writing
from rota.dataplane.spark.bisection import Bisection
from rota.dataplane.spark.warming import ROWS, TASKS
from rota.ledger.values import Ranges
from tests.dataplane.world import World
from tests.waiting import LONG

PIPELINE = "pipeline = Pipeline(source=source(), table=delta({table!r}), transform=lambda f: f.where(%r))\n"


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_job, "REHEARSAL", LONG)


def rehearse(world: World) -> None:
    world.ports.job.rehearse(endpoint=world.endpoint, run_id="run-1")


def list_files(world: World) -> set[str]:
    return {str(one.relative_to(world.folder)) for one in world.folder.rglob("*") if one.is_file()}


@pytest.mark.parametrize("condition", ["n < 9", "raise_error('no')"], ids=["works", "fails"])
def test_it_writes_the_newest_data_again_and_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, condition: str
) -> None:
    """A failure stops no run."""
    jobs: list[tuple[Ranges, int]] = []
    real = Bisection.write_together

    def write_together(self: Bisection, ranges: Ranges, attempt: str) -> Any:
        done = real(self, ranges, attempt)
        jobs.append((ranges, done.count_rows()["p:a"]))
        return done

    monkeypatch.setattr(Bisection, "write_together", write_together)
    world.write(PIPELINE % "n < 9")
    world.rows("a", "0", 2)
    world.land("a", "1", ['{"n": 1}', '{"n": "bad"}', '{"n": 10}'])
    world.rows("b", "0", 1)
    world.give("a", "b")
    world.until_idle("a", "b")
    del jobs[:]
    before = list_files(world)
    world.write(PIPELINE % condition)
    rehearse(world)
    assert jobs == ([({"p:a": (1, 2), "p:b": (0, 1)}, 1)] if condition == "n < 9" else [])
    assert list_files(world) == before, "no commit either"
    assert ("rehearsal=failed reason=" in caplog.text) is (condition != "n < 9")


@pytest.mark.parametrize("gone", [False, True], ids=["before the first data", "once consumed files are gone"])
def test_without_data_that_can_be_read_again_it_writes_records_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gone: bool
) -> None:
    written: list[int] = []
    real = writing.write

    def write(*given: Any, **more: Any) -> Any:
        files = real(*given, **more)
        written.append(sum(one.rows for one in files))
        return files

    if gone:
        world.rows("a", "0", 2)
        world.give("a")
        world.until_idle("a")
        world.delete("a/0.json")
    monkeypatch.setattr(writing, "write", write)
    before = list_files(world)
    rehearse(world)
    assert written == [TASKS * ROWS]
    assert list_files(world) == before
    assert "rehearsal=failed" not in caplog.text
