"""A run that serves its worker, in virtual time: each batch is a batch, and every reason to end ends it between two."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.coordination.membership import announce, end_run, leave, register_run
from rota.coordination.records import Live
from rota.dataplane.ports import ENDS, FailedPartition, Job, Observation, Query, WrittenFiles
from rota.ledger.values import Ranges
from rota.pipeline import files
from rota.run import serve
from rota.run.answer import answer
from rota.run.consume import CommittedBatch, DroppedPartition, Event, IdlePartition, ParkedPartition
from rota.run.serve import Rest, RunEnd, RunLimits
from rota.run.work import WorkWatcher
from simulator.job import TimedJob
from simulator.source import MemorySource
from tests.sim.served_run import BATCH, PARTITIONS, PIPELINE, ServedRun


@dataclass
class OpenedJob:
    """A job that reports when it is run, or rehearsed."""

    job: Job
    opened: Callable[[], None]

    def rehearse(self, **more: Any) -> None:
        """See `Job.rehearse`."""
        self.opened()
        self.job.rehearse(**more)

    def run(self, jobs: Sequence[Ranges], **more: Any) -> Iterator[WrittenFiles | FailedPartition]:
        """See `Job.run`."""
        self.opened()
        return self.job.run(jobs, **more)


def list_commits(seen: list[tuple[float, Event | Rest | RunEnd]]) -> list[tuple[str, int, int]]:
    return [(e.partition, e.start, e.end) for _, e in seen if isinstance(e, CommittedBatch)]


def test_what_comes_is_consumed_at_the_next_look_and_the_run_ends_when_nothing_came_for_a_while() -> None:
    world = ServedRun()
    world.ends["s:0"] = 3
    world.script = {6.0: world.land("s:1"), 6.1: world.land("s:2"), 14.0: world.land("s:0", 2)}
    seen = world.serve(RunLimits(10.0, 300.0))
    assert list_commits(seen) == [("s:0", 0, 3), ("s:1", 0, 1), ("s:0", 3, 5)], (
        "and what is another worker's is left to it"
    )
    assert seen[-1][1] == RunEnd("nothing came for 10 s")
    last = max(at for at, e in seen if isinstance(e, CommittedBatch))
    assert 10.0 <= seen[-1][0] - last < 11.0
    assert all(e.run_id == "r1" for _, e in seen if isinstance(e, CommittedBatch))


def test_a_run_without_partitions_shows_that_it_is_ready_and_consumes_what_its_worker_is_given() -> None:
    world = ServedRun()
    world.give({"w1": (), "w2": PARTITIONS})
    opened, seen_at = list[float](), list[tuple[str, ...]]()
    job = world.ports.job
    world.ports = replace(world.ports, job=OpenedJob(job, lambda: opened.append(world.now)))
    world.script = {
        1.0: lambda: seen_at.extend(one.partitions for one in world.tree.runs({world.w1})),
        2.0: lambda: world.give({"w1": ("s:1",), "w2": ("s:0", "s:2")}),
        3.0: world.land("s:1"),
        4.0: world.land("s:0"),
    }
    seen = world.serve(RunLimits(10.0, 300.0), partitions=())
    assert opened[0] == 0.0, "Spark is opened before the worker owns anything"
    assert seen_at == [()], "and its worker sees its node"
    assert list_commits(seen) == [("s:1", 0, 1)]


@pytest.mark.parametrize(("handover", "latest"), [(serve.HANDOVER, 0.11), (0.0, 0.5)], ids=["", "ablation"])
def test_a_partition_that_its_worker_takes_over_is_consumed_at_once(
    monkeypatch: pytest.MonkeyPatch, handover: float, latest: float
) -> None:
    """Ablation: without shorter pauses the batch begins half a poll interval later on average."""
    monkeypatch.setattr(serve, "HANDOVER", handover)
    delays = list[float]()
    for step in range(10):
        world, targets = ServedRun(), {"w1": PARTITIONS, "w2": ()}
        aimed, claimed = 5.0 + step / 20, 5.6 + step / 20
        world.script = {
            4.0: world.land("s:2"),
            aimed: partial(world.aim, targets),
            claimed: partial(world.follow, targets),
        }
        seen = world.serve(RunLimits(10.0, 300.0))
        (at,) = (at for at, event in seen if isinstance(event, CommittedBatch))
        delays.append(at - BATCH - claimed)
    assert min(delays) >= 0.0
    assert latest / 2 < max(delays) <= latest


def test_a_run_without_partitions_opens_no_spark_for_a_worker_that_is_gone() -> None:
    """Without the worker's address, the run would start a Spark of its own."""
    world, opened = ServedRun(), list[float]()
    world.ports = replace(world.ports, job=OpenedJob(world.ports.job, lambda: opened.append(world.now)))
    leave(world.tree, world.w1)
    seen = world.serve(RunLimits(10.0, 300.0), partitions=())
    assert isinstance(seen[-1][1], RunEnd)
    assert "is gone" in seen[-1][1].reason
    assert not opened


PAID = replace(PIPELINE, source=files("s3://bucket/rows", format="json", schema="row long"))


def watch_polls() -> tuple[ServedRun, list[float]]:
    """A run, and when its source is observed."""

    class Seen(MemorySource):
        def observe(self, partitions: tuple[str, ...], query: Query = ENDS) -> Observation:
            at.append(world.now)
            return super().observe(partitions, query)

    at: list[float] = []
    world = ServedRun()
    world.ports = replace(world.ports, source=Seen(world.ends.__getitem__, lambda _: 100))
    return world, at


@pytest.mark.parametrize(("every", "polls"), [(0.0, range(30, 41)), (5.0, range(6, 13))])
def test_a_hand_over_adds_polls_only_if_they_cost_nothing(every: float, polls: range) -> None:
    """A poll of a bucket is a list request. Its run does not poll more often while another worker keeps a partition."""
    world, at = watch_polls()
    world.script = {1.0: partial(world.aim, {"w1": PARTITIONS, "w2": ()})}
    world.serve(RunLimits(10.0, 300.0), pipeline=PAID if every else PIPELINE)
    assert len([one for one in at if 1.0 <= one <= 5.0]) in polls


def test_a_run_that_keeps_its_node_would_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.run.consume.end_run", lambda *_: None)
    with pytest.raises(AssertionError, match="no hand-over waits for it"):
        ServedRun(ends={"s:0": 1, "s:1": 0, "s:2": 0}).serve(RunLimits())


def test_without_linger_a_run_is_one_batch() -> None:
    world = ServedRun(ends={"s:0": 1, "s:1": 1, "s:2": 0})
    seen = world.serve(RunLimits(linger=0.0))
    assert list_commits(seen) == [("s:0", 0, 1)]
    assert not [e for _, e in seen if isinstance(e, Rest)]


def test_a_run_that_always_has_something_to_do_ends_when_its_time_is_over() -> None:
    world = ServedRun()
    world.script = {float(at): world.land("s:1") for at in range(1, 200)}
    seen = world.serve(RunLimits(10.0, 60.0))
    assert seen[-1][1] == RunEnd("it served for 60 s")
    assert 60.0 <= seen[-1][0] <= 60.0 + BATCH + 1


def test_a_trickle_that_comes_to_two_workers_in_turns_is_one_run_of_each_for_as_long_as_it_may_last() -> None:
    """Eight folders have a file in turn, 3 s apart, and four neighbours of them are one worker's: for 15 s nothing came, a
    run ended after 10, and each round launched another."""
    for limits, reason in ((RunLimits(), "it served for 300 s"), (RunLimits(linger=10.0), "nothing came for 10 s")):
        world = ServedRun()
        world.script = {24.0 * turn + 3 * file: world.land("s:1") for turn in range(20) for file in range(4)}
        assert world.serve(limits)[-1][1] == RunEnd(reason)


@pytest.mark.parametrize(
    ("others", "ends"),
    [
        (0, "all that it worked on is parked"),
        (1, "a partition was parked, which shows once the run has ended"),
    ],
)
def test_a_run_that_only_parks_ends_and_one_with_other_work_lasts_no_longer_for_it(others: int, ends: str) -> None:
    """The page said "materializing" for a minute of a partition that had failed at once, and again at each try."""
    world = ServedRun(ends={"s:0": 1, "s:1": others, "s:2": 0})
    world.ports = replace(world.ports, job=TimedJob(world.work, lambda ranges: "s:0" if "s:0" in ranges else None))
    seen = world.serve(RunLimits())
    assert [e.partition for _, e in seen if isinstance(e, ParkedPartition)][:1] == ["s:0"]
    assert seen[-1][1] == RunEnd(ends)
    came = [at for at, e in seen if isinstance(e, CommittedBatch)]
    assert seen[-1][0] <= (came[-1] + 31 + BATCH if came else 2 * BATCH)


def test_a_run_ends_after_the_batch_in_which_its_worker_is_gone() -> None:
    world = ServedRun(ends={"s:0": 1, "s:1": 0, "s:2": 0})
    world.script = {1.0: lambda: leave(world.tree, world.w1)}  # in the middle of the batch
    seen = world.serve(RunLimits())
    assert list_commits(seen) == [("s:0", 0, 1)]
    assert "is gone" in seen[-1][1].reason  # type: ignore[union-attr]
    assert seen[-1][0] < 5


@pytest.mark.parametrize("stays", [True, False], ids=["", "ablation"])
def test_the_run_of_a_worker_that_leaves_consumes_until_the_partitions_are_elsewhere(
    stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ablation: the run ends at once, and what lands while the controller decides waits for the next owner."""
    if not stays:
        monkeypatch.setattr(WorkWatcher, "owns_partitions", lambda _: False)
    world = ServedRun(ends={"s:0": 1, "s:1": 0, "s:2": 0})

    def hand_over() -> None:
        world.give({"w1": (), "w2": ("s:0", "s:1", "s:2")})
        world.land("s:0")()

    world.script = {
        1.0: lambda: announce(world.tree, world.w1, Live(leaving=True)),
        4.0: world.land("s:1"),
        8.0: hand_over,
    }
    seen = world.serve(RunLimits())
    assert list_commits(seen) == [("s:0", 0, 1), ("s:1", 0, 1)][: 1 + stays]
    assert seen[-1][1] == RunEnd("w1 leaves")
    assert seen[-1][0] < (10 if stays else 5)


def test_a_reason_from_outside_is_asked_for_between_two_batches() -> None:
    world = ServedRun(ends={"s:0": 1, "s:1": 0, "s:2": 0})
    asked: list[float] = []

    def find_reason() -> str:
        asked.append(world.now)
        return "a hand-over waits" if world.now > 4 else ""

    seen = world.serve(RunLimits(), find_reason)
    assert seen[-1][1] == RunEnd("a hand-over waits")
    assert min(asked) >= BATCH
    assert seen[-1][0] < 5


def test_a_hand_over_needs_no_launch_and_waits_for_no_run() -> None:
    """s:2 comes to w1 and s:0 goes to w2 while the run rests: the next poll has the one and not the other."""
    world = ServedRun(ends={"s:0": 1, "s:1": 0, "s:2": 1})

    def hand_over() -> None:
        world.give({"w1": ("s:1", "s:2"), "w2": ("s:0",)})
        world.land("s:0")()

    world.script = {5.0: hand_over}
    seen = world.serve(RunLimits())
    assert list_commits(seen) == [("s:0", 0, 1), ("s:2", 0, 1)]
    taken = next(at for at, e in seen if isinstance(e, CommittedBatch) and e.partition == "s:2")
    assert taken <= 5.0 + 1.0 + BATCH
    assert not [e for _, e in seen if isinstance(e, DroppedPartition)]


def test_a_run_that_is_ended_in_the_middle_of_its_batch_leaves_no_node() -> None:
    world = ServedRun(ends={"s:0": 1, "s:1": 0, "s:2": 0})

    def cancel() -> None:
        assert [one.partitions for one in world.tree.runs()] == [("s:0",)]
        raise KeyboardInterrupt

    world.script = {1.0: cancel}
    with pytest.raises(KeyboardInterrupt):
        world.serve(RunLimits())
    assert not world.tree.runs()
    assert list_commits(world.serve(RunLimits())) == [("s:0", 0, 1)], "and nothing is lost"


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from(PARTITIONS), st.integers(1, 3)), max_size=25))
def test_whatever_comes_when_runs_in_turn_consume_all_of_it_once(arrivals: list[tuple[int, str, int]]) -> None:
    world = ServedRun()
    for number, (tenths, partition, rows) in enumerate(arrivals):
        world.script[tenths / 10 + number * 1e-6] = world.land(partition, rows)
    seen: list[tuple[float, Event | Rest | RunEnd]] = []
    while world.script:
        seen += world.serve(RunLimits(linger=3.0, max_run=12.0))
    seen += world.serve(RunLimits(linger=3.0, max_run=12.0))
    for partition in PARTITIONS[:2]:
        mine = [(start, end) for p, start, end in list_commits(seen) if p == partition]
        assert [start for start, _ in mine] == [0, *(end for _, end in mine[:-1])] if mine else True
        assert (mine[-1][1] if mine else 0) == world.ends[partition]


def test_a_click_waits_for_a_partition_that_a_run_works_on_and_for_no_other() -> None:
    world = ServedRun(ends={"s:0": 2, "s:1": 0, "s:2": 1})
    node = register_run(world.tree, "elder", world.w1, ("s:0",))
    world.script = {7.0: lambda: end_run(world.tree, node)}
    asked = (*PARTITIONS, "s:9")
    answers = answer(world.tree, PIPELINE, asked, "click", world.ports, wait=world.pass_time)
    by = {e.partition: (run, type(e)) for run, e in answers}
    assert by == {
        "s:0": (world.w1, CommittedBatch),
        "s:1": (world.w1, IdlePartition),
        "s:2": (world.w2, CommittedBatch),
        "s:9": ("", DroppedPartition),
    }
    assert 7.0 <= world.now < 7.0 + 2 * BATCH + 1


@pytest.mark.parametrize(("every", "polls"), [(0.0, range(50, 61)), (5.0, range(20, 31))])
def test_polls_of_a_bucket_are_rarer_the_longer_nothing_came(every: float, polls: range) -> None:
    """In a bucket each poll of a run is a list request. What comes is found after an eighth more than it took to come."""
    world, at = watch_polls()
    world.script = {3.0: world.land("s:0"), 20.0: world.land("s:1")}
    seen = world.serve(RunLimits(), pipeline=PAID if every else PIPELINE)
    found = [at for at, e in seen if isinstance(e, CommittedBatch)]
    assert found[0] - BATCH - 3.0 <= max(0.5, 3.0 / 8)
    assert found[1] - BATCH - 20.0 <= max(0.5, (20.0 - found[0]) / 8 if every else 0.0) + 0.01
    assert len([one for one in at if one > found[1]]) in polls


def test_a_batch_reads_its_rights_once_and_the_polls_around_it_once() -> None:
    """A poll reads the records again only after a batch changed them. It read the target twice."""
    world, reads = ServedRun(), Counter[str]()
    store, real = world.tree.store, world.tree.store.get_many
    world.tree.store.get_many = lambda paths: (  # type: ignore[method-assign]
        reads.update(path.split("/")[3] for path in paths if path.count("/") > 2) or real(paths)
    )
    world.script = {3.0: world.land("s:0"), 12.0: world.land("s:0")}
    seen = world.serve(RunLimits())
    assert world.tree.store is store
    assert list_commits(seen) == [("s:0", 0, 1), ("s:0", 1, 2)]
    batches = 3  # the first finds nothing
    assert reads["assign"] == 2 * batches
