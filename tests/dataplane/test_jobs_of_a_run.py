"""A run with much to do: bounded jobs one after the other, each committed. No Spark: `faults` declares the results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from rota.coordination.records import Slot, Slots
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.ports import ASSIGN
from rota.dataplane.spark import bisection
from rota.dataplane.spark.bisection import ALONE, LEAST
from rota.errors import EnvironmentFailed
from rota.run import job_gate
from rota.run.consume import CommittedBatch, DroppedPartition, ParkedPartition
from rota.run.replay import ReplayedRange, replay
from tests.dataplane.faulty_jobs import DISK, Faults, land_files, run, spark
from tests.dataplane.landing_folders import land, source
from tests.dataplane.stand_ins import consume_without_spark
from tests.dataplane.world import World

PIPELINE = "pipeline = Pipeline(source=source({caps}), table=delta({{table!r}}))\n"
TWO = "max_job_files=2"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Let a job have two files."""
    world = World(tmp_path)
    world.write(PIPELINE.format(caps=TWO))
    return world


def ends(monkeypatch: pytest.MonkeyPatch, after: int, meanwhile: Callable[[], object] | None = None) -> Faults:
    """Kill the process when job `after` begins; or call `meanwhile` then."""

    def fault(*_: object) -> None:
        if len(faults.jobs) == after:
            if meanwhile is None:
                raise KeyboardInterrupt
            meanwhile()

    faults = Faults(monkeypatch, fault)
    return faults


def offsets(world: World) -> dict[str, int]:
    return {p.removeprefix("p:"): one.record.offset for p, one in world.tree.checkpoints().items()}


# --- a replay -------------------------------------------------------------------------------------------------------


def test_a_replay_works_in_jobs_as_a_run_does_and_a_long_range_has_the_time_of_its_batches(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range is replaced as a whole; a run would read the longest one in three batches."""
    files = {"a": 5, "b": 1, "c": 1, "d": 1}
    for key, count in files.items():
        land_files(world, key, files=count)
    world.give(*files)
    ranges = {f"p:{key}": (0, end) for key, end in files.items()}
    for partition, (_, end) in ranges.items():
        consume_without_spark(world, partition, end)
    faults = Faults(monkeypatch, lambda *_: None)
    given: list[float] = []
    monkeypatch.setattr(bisection, "limit", lambda _, seconds: given.append(seconds) or nullcontext())
    ports = world.open_ports(connect=lambda _: spark())
    events = list(replay(world.tree, ports, ranges, "again"))
    assert {e.partition for e in events if isinstance(e, ReplayedRange)} == set(ranges)
    assert faults.jobs == [{"p:a": (0, 5)}, {"p:b": (0, 1), "p:c": (0, 1)}, {"p:d": (0, 1)}]
    assert given == [3 * world.pipeline.deadline] * 3


# --- how large a job is ---------------------------------------------------------------------------------------------


def test_a_job_is_within_both_caps_and_holds_at_least_one(tmp_path: Path) -> None:
    keys = [f"p:{n}" for n in range(9)]
    sizes = [3, 1, 1, 5, 9, 2, 1, 1, 1]
    for key, size in zip(keys, sizes, strict=True):
        land(tmp_path, f"{key[2:]}/0.json", f"{key[2:]}/1.json", text="x" * size)
    latest = source(tmp_path).observe(tuple(keys), ASSIGN).ends
    for files in (1, 2, 3, 4, 100):
        for room in (1, 2, 4, 6, 18, 100):
            jobs = source(tmp_path, max_job_files=files, max_job_bytes=room).plan_jobs(dict.fromkeys(keys, 0), latest)
            assert [p for ranges in jobs for p in ranges] == keys, "each in one job, in order"
            for ranges in jobs:
                taken = [(sizes[keys.index(p)], end) for p, (_, end) in ranges.items()]
                assert all(end >= 1 for _, end in taken)
                assert len(taken) == 1 or sum(end for _, end in taken) <= files
                assert sum(size * end for size, end in taken) <= room or taken == [(taken[0][0], 1)]


def test_a_run_is_several_jobs_each_with_a_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    land_files(world, "abcde")
    faults = Faults(monkeypatch, lambda *_: None)
    events = world.run(*"abcde", connect=lambda _: spark())
    assert [len(one) for one in faults.jobs] == [2, 2, 1]
    assert len({e.commit_id for e in events if isinstance(e, CommittedBatch)}) == 3
    assert len({e.table_version for e in events if isinstance(e, CommittedBatch)}) == 3
    assert offsets(world) == dict.fromkeys("abcde", 1)


def test_what_was_committed_stays_when_the_run_is_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run completes one job, however often runs are killed, and the backlog drains."""
    land_files(world, "abcde", files=3)
    for _ in range(9):
        ends(monkeypatch, 2)
        with suppress(KeyboardInterrupt):
            run(world, "abcde")
    assert offsets(world) == dict.fromkeys("abcde", 3)


def test_without_bounds_no_run_gets_anywhere(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One job of everything takes longer than a run may."""
    land_files(world, "abcde", files=3)
    bounded = FilesSource.plan_jobs
    monkeypatch.setattr(
        FilesSource, "plan_jobs", lambda *of: ({p: r for ranges in bounded(*of) for p, r in ranges.items()},)
    )
    for _ in range(9):
        Faults(monkeypatch, too_large)
        with suppress(KeyboardInterrupt):
            run(world, "abcde")
    assert offsets(world) == dict.fromkeys("abcde", 0)


def too_large(*_: object) -> None:
    raise KeyboardInterrupt


# --- whose turn it is -----------------------------------------------------------------------------------------------


def rounds(world: World, monkeypatch: pytest.MonkeyPatch, keys: str) -> dict[str, int]:
    """Start as many runs as there are partitions, each killed after its first job. Meanwhile each partition gets a file."""
    world.give(*keys)
    for turn in range(len(keys)):
        for key in keys:
            world.rows(key, f"{turn:02}", 1)
        ends(monkeypatch, 2)
        with suppress(KeyboardInterrupt):
            run(world, keys)
    return offsets(world)


def test_each_partition_has_a_turn_however_early_runs_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(rounds(world, monkeypatch, "abcdef").values())


def test_in_the_order_of_names_the_last_are_never_reached(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.run.consume.sort_by_turn", lambda _, offsets: dict(sorted(offsets.items())))
    assert [key for key, at in rounds(world, monkeypatch, "abcdef").items() if not at] == list("cdef")


def test_a_run_begins_no_job_after_its_shift(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    land_files(world, "abcd")
    Faults(monkeypatch, lambda *_: None)
    monkeypatch.setattr(job_gate, "MAX_JOB_START_S", -1.0)
    first = run(world, "abcd")
    assert [type(e) for e in first.values()] == [CommittedBatch, CommittedBatch, DroppedPartition, DroppedPartition]
    late = [e for e in first.values() if isinstance(e, DroppedPartition)]
    assert {e.reason for e in late} == {"left to the next run: this one has worked long enough"}
    assert {p for p, e in run(world, "abcd").items() if isinstance(e, CommittedBatch)} == {e.partition for e in late}


def test_those_that_always_fail_do_not_stop_the_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They waited longest, so they come first; each fails like the environment, and is alone in its job."""
    bad = "abcdefgh"[: 2 * ALONE]
    keys = bad + "yz"
    world.write(PIPELINE.format(caps=f"max_job_files={len(bad)}"))
    land_files(world, keys)
    Faults(monkeypatch, lambda p, _: "Permission denied" if p[2:] in bad else None)
    events = run(world, keys)
    assert {p for p, e in events.items() if isinstance(e, CommittedBatch)} == {"p:y", "p:z"}
    assert {p for p, e in events.items() if isinstance(e, ParkedPartition)} == {f"p:{k}" for k in bad}


def test_a_full_disk_ends_a_run_of_many_jobs_soon(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = "abcdefghijklmnopqrst"
    land_files(world, keys)
    faults = Faults(monkeypatch, lambda *_: DISK)
    with pytest.raises(EnvironmentFailed, match="No space left"):
        run(world, keys)
    assert len(faults.jobs) == 6, "two jobs, by halves"
    assert not world.tree.parked()


# --- with which right -----------------------------------------------------------------------------------------------


def make_mover(world: World) -> Callable[[], None]:
    """In the next epoch c has no worker yet."""

    def publish() -> None:
        worker = world.incarnation.rpartition("@")[0]
        kept = frozenset({"p:a", "p:b", "p:d"})
        epoch = world.tree.head().record.epoch
        world.tree.update(
            world.tree.paths.assign(worker), Slots, lambda _: Slots(slots=(Slot(epoch=epoch, partitions=kept),))
        )

    return publish


def test_what_is_given_away_meanwhile_is_left_and_named_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    land_files(world, "abcd")
    named: list[tuple[str, ...]] = []
    move = make_mover(world)

    def meanwhile(*_: object) -> None:
        if not named:
            move()
        named.extend(tuple(sorted(one.partitions)) for one in world.tree.runs())

    faults = Faults(monkeypatch, meanwhile)
    events = run(world, "abcd")
    assert events["p:c"] == DroppedPartition("p:c", "the target of w1 does not name it")
    assert [sorted(one) for one in faults.jobs] == [["p:a", "p:b"], ["p:d"]]
    assert named[0] == ("p:a", "p:b", "p:c", "p:d")
    assert named[-1] == ("p:d",), "a hand-over of the others waits for this run no more"


def test_without_another_look_it_is_worked_on_in_vain(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    land_files(world, "abcd")
    faults = ends(monkeypatch, 1, make_mover(world))
    monkeypatch.setattr(job_gate.JobGate, "recheck", lambda _, ranges: ranges)
    run(world, "abcd")
    assert sum("p:c" in one for one in faults.jobs) == 1


# --- what hangs -----------------------------------------------------------------------------------------------------


class Hanging(Faults):
    """Replaces Spark and its clock: a job with a hanging range ends at its deadline."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hangs: Callable[[str, range], bool]) -> None:
        self.seconds: list[float] = []

        def fault(partition: str, of: tuple[int, int]) -> None:
            if hangs(partition, range(*of)):
                raise EnvironmentFailed("x", late=1.0)
            self.seconds[-1] = 0.0

        @contextmanager
        def limited(_: object, seconds: float) -> Iterator[None]:
            self.seconds.append(seconds)
            yield

        super().__init__(monkeypatch, fault)
        monkeypatch.setattr(bisection, "limit", limited)


@pytest.mark.parametrize(("partitions", "files"), [(64, 1), (8, 8), (2, 60)])
def test_what_hangs_is_found_within_five_deadlines(
    world: World, monkeypatch: pytest.MonkeyPatch, partitions: int, files: int
) -> None:
    """So a search ends before the run is killed, and a range that is only slow gets its full deadline alone."""
    world.write(PIPELINE.format(caps=""))
    keys = [f"k{n:02}" for n in range(partitions)]
    for key in keys:
        for n in range(files):
            world.rows(key, f"{n:02}", 1)
    world.give(*keys)
    found = Hanging(monkeypatch, lambda p, of: p == "p:k01" and 0 in of)
    events = {e.partition: e for e in world.run(*keys, connect=lambda _: spark())}
    parked = events.pop("p:k01")
    assert isinstance(parked, ParkedPartition)
    assert parked.retry_at is None
    assert parked.reason.startswith("p:k01 alone hangs: it was not done after 600 s in offset 0 (k01/00.json)")
    assert {type(e) for e in events.values()} == {CommittedBatch}
    assert sum(found.seconds) < 5 * world.pipeline.deadline
    assert min(s for s in found.seconds if s) >= LEAST


def test_what_all_partitions_hang_on_is_no_partition_s_fault(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write(PIPELINE.format(caps=""))
    land_files(world, "abcd")
    found = Hanging(monkeypatch, lambda *_: True)
    with pytest.raises(EnvironmentFailed, match="A job of Spark was ended: it was not done after 600 s in offset 0"):
        run(world, "abcd")
    assert not world.tree.parked()
    assert sum(found.seconds) < 3600


def test_what_hangs_in_a_job_of_its_own_stops_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited longest, and the search takes longer than `MAX_JOB_START_S`."""
    world.write(PIPELINE.format(caps="max_files=8, max_job_files=8"))
    for n in range(8):
        world.rows("a", f"{n:02}", 1)
    land_files(world, "a")
    land_files(world, "bcd", files=8)
    world.give(*"abcd")
    Hanging(monkeypatch, lambda p, of: p == "p:a" and 0 in of)
    monkeypatch.setattr(job_gate, "MAX_JOB_START_S", -1.0)
    for _ in range(3):
        run(world, "abcd")
    assert {key: world.tree.checkpoints()[f"p:{key}"].record.offset for key in "abcd"} == {
        "a": 0,
        "b": 8,
        "c": 8,
        "d": 8,
    }
    assert list(world.tree.parked()) == ["p:a"]


def test_what_hangs_while_spark_has_no_slot_ends_the_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    land_files(world, "ab")
    found = Hanging(monkeypatch, lambda p, _: p == "p:a")
    with pytest.raises(EnvironmentFailed, match="it was not done after 600 s"):
        run(world, "ab", answers=False)
    assert len(found.jobs) == 1
    assert not world.tree.parked()
