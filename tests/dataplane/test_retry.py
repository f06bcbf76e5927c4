"""The next step of a park works: a file that was repaired in place is read in its new state, never in its old one."""

import os

import pytest

from rota.coordination.parking import park
from rota.errors import ConfigError
from rota.ledger.ledger import Ledger
from rota.people.retry import retry
from rota.run.consume import CommittedBatch, ConsumingRun, DroppedPartition, Event, ParkedPartition
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.world import World


def rewritten(world: World, key: str, name: str, count: int) -> None:
    """Overwrite an existing file with these rows, at another modification time."""
    world.rows(key, name, count)
    path = world.folder / "land" / key / f"{name}.json"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def test_a_file_with_too_many_bad_records_is_mended_in_place(world: World) -> None:
    world.give("a")
    world.land("a", "0", [*(['{"n": "x"}'] * 4), *(['{"n": 1, "word": "w"}'] * 6)])
    (parked,) = world.run("a")
    assert isinstance(parked, ParkedPartition)
    assert "Mend the files or the schema, then: rota retry p:a" in parked.reason
    rewritten(world, "a", "0", 10)
    assert retry(world.tree, "p:a", world.ports, "tests") == ("a/0.json",)
    assert not world.tree.parked()
    assert [(e.rows, e.bad_rows) for e in world.run("a") if isinstance(e, CommittedBatch)] == [(10, 0)]
    assert damage(world.table / "main", {"p:a": {0: 10}}) == NO_DAMAGE
    assert [c["rota.run"] for c in log(world.table / "main").said("retry")] == ["tests"]


def test_of_a_file_that_changed_before_it_was_read_the_advice_works_too(world: World) -> None:
    world.write("pipeline = Pipeline(source=source(max_files=1), table=delta({table!r}))\n")
    world.give("a")
    for name in "012":
        world.rows("a", name, 2)
    world.run("a")
    rewritten(world, "a", "1", 3)
    rewritten(world, "a", "0", 5)  # consumed: only a replay reads it again
    (parked,) = world.run("a")
    assert isinstance(parked, ParkedPartition)
    assert (
        "a/1.json (offset 1) changed after it got its offset. To take it as it is now: rota retry p:a" in parked.reason
    )
    assert retry(world.tree, "p:a", world.ports) == ("a/1.json",)
    world.until_idle("a")
    assert damage(world.table / "main", {"p:a": {0: 2, 1: 3, 2: 2}}) == NO_DAMAGE


def test_one_that_is_still_written_waits(world: World) -> None:
    world.give("a")
    world.rows("a", "0", 2)
    world.land("a", "0", ["{torn"])
    assert isinstance(world.run("a")[0], ParkedPartition)
    rewritten(world, "a", "0", 2)
    world.write("pipeline = Pipeline(source=source(settle=1000.0), table=delta({table!r}))\n")
    with pytest.raises(ConfigError, match=r"a/0.json changed a moment ago. Once it is no longer written: rota r"):
        retry(world.tree, "p:a", world.ports)
    assert world.tree.parked()


def test_what_cannot_be_looked_at_is_left_to_the_run(world: World) -> None:
    world.give("a")
    world.rows("a", "0", 2)
    park(world.tree, "p:a", "bad")
    assert retry(world.tree, "p:a", None) == ()
    assert retry(world.tree, "p:a", world.ports) == ()  # no table yet
    assert not world.tree.parked()


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_run_that_read_the_file_as_it_was_commits_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """A run has read the files and not committed yet while an operator repairs one and retries: then the index would give
    the old rows to the new file, and the new rows would be in no table."""
    world.give("a", "b")
    world.rows("a", "0", 2)
    world.rows("b", "0", 2)
    if not guarded:
        past = Ledger.read_log
        monkeypatch.setattr(
            Ledger, "read_log", lambda ledger, since=-1: [p for p in past(ledger, since) if p.op != "retry"]
        )
    committed = ConsumingRun.commit

    def late(run: ConsumingRun, *rest: object) -> object:
        monkeypatch.setattr(ConsumingRun, "commit", committed)
        rewritten(world, "a", "0", 3)
        retry(world.tree, "p:a", world.ports)
        return committed(run, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ConsumingRun, "commit", late)
    events: dict[str, Event] = {e.partition: e for e in world.run("a", "b")}
    assert isinstance(events["p:a"], DroppedPartition if guarded else CommittedBatch), events
    assert isinstance(events["p:b"], CommittedBatch)
    world.until_idle("a", "b")
    assert damage(world.table / "main", {"p:a": {0: 3}, "p:b": {0: 2}}) == {**NO_DAMAGE, "lost": 0 if guarded else 1}
