"""A run that serves its worker, in virtual time: each batch is a batch, and every reason to end ends it between two."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.answer import answer
from rota.consume import CommittedBatch, DroppedPartition, Event, IdlePartition
from rota.coordination import ownership
from rota.coordination.group_state import GroupState
from rota.coordination.membership import announce, end_run, join, leave, register_run
from rota.coordination.memory import MemoryServer
from rota.coordination.records import Head, Live, Own, Slot, Slots, encode
from rota.coordination.store import Create, Set
from rota.dataplane.ports import Ports, Ranges
from rota.pipeline import Pipeline, delta, files
from rota.serve import Rest, RunEnd, Terms, serve
from rota.sim.job import TimedJob
from rota.sim.memory_table import MemoryTable
from rota.sim.source import MemorySource

PIPELINE = Pipeline(files("rows", format="json", schema="row long"), delta("table"), name="s")
PARTITIONS = ("s:0", "s:1", "s:2")
BATCH = 2.0  # seconds


@dataclass
class World:
    """Worker w1 owns s:0 and s:1, w2 owns s:2; `script` says what happens when. Waiting and Spark let time pass."""

    script: dict[float, Callable[[], object]] = field(default_factory=dict)
    now: float = 0.0
    ends: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    busy: list[Ranges] = field(default_factory=list)

    def __post_init__(self) -> None:
        server = MemoryServer(lambda: self.now)
        self.tree, self.other = (GroupState(server.connect(), "g") for _ in range(2))
        self.tree.found()
        self.tree.grow("s", ("0", "1", "2"))
        self.tree.store.multi([Create(self.tree.paths.own(p), encode(Own())) for p in PARTITIONS])
        self.w1, self.w2 = join(self.tree, "w1", Live()), join(self.other, "w2", Live())
        self.give({"w1": PARTITIONS[:2], "w2": PARTITIONS[2:]})
        table = MemoryTable("g", lambda: None, lambda: None)
        source = MemorySource(self.ends.__getitem__, lambda _: 100, lambda: None)
        job = TimedJob(self.work)
        self.ports = Ports(source, table, MemoryTable("g"), job, lambda _: self.ports, lambda: self.now)

    def give(self, targets: Mapping[str, tuple[str, ...]]) -> None:
        """A new epoch with these targets, and owners that follow it."""
        tree = self.tree
        epoch = tree.head().record.epoch + 1
        for worker, partitions in targets.items():
            path, there = tree.paths.assign(worker), tree.assigns().get(worker)
            record = encode(Slots(slots=(Slot(epoch=epoch, partitions=frozenset(partitions)),)))
            tree.store.multi([Set(path, record, -1) if there else Create(path, record)])
        tree.store.multi([Set(tree.paths.head, encode(Head(epoch=epoch)), -1)])
        for worker, partitions in targets.items():
            incarnation = self.w1 if worker == "w1" else self.w2
            for partition in partitions:
                own = tree.owned((partition,))[partition]
                if own.incarnation != incarnation:
                    at = self.tree if worker == "w1" else self.other
                    ownership.claim(at, incarnation, partition, own.version)

    def pass_time(self, seconds: float) -> None:
        """What the script says happens on the way."""
        end = self.now + seconds
        for at in sorted(at for at in self.script if at <= end):
            self.now = max(self.now, at)
            self.script.pop(at)()
        self.now = end

    def work(self, ranges: Ranges) -> None:
        self.busy.append(ranges)
        self.pass_time(BATCH)

    def land(self, partition: str, number: int = 1) -> Callable[[], None]:
        """So many new offsets."""

        def landed() -> None:
            self.ends[partition] += number

        return landed

    def serve(self, terms: Terms, find_reason: Callable[[], str] = str) -> list[tuple[float, Event | Rest | RunEnd]]:
        """What a run of w1 that was told of s:0 yields, each with its time."""
        served = serve(
            self.tree,
            PIPELINE,
            self.w1,
            ("s:0",),
            "r1",
            self.ports,
            terms,
            wait=self.pass_time,
            find_reason=find_reason,
        )
        seen = []
        for event in served:
            if isinstance(event, Rest | RunEnd):
                assert not self.tree.runs(), "between two batches nobody waits for it"
            seen.append((self.now, event))
        return seen


def committed(seen: list[tuple[float, Event | Rest | RunEnd]]) -> list[tuple[str, int, int]]:
    return [(e.partition, e.start, e.end) for _, e in seen if isinstance(e, CommittedBatch)]


def test_what_comes_is_consumed_at_the_next_look_and_the_run_ends_when_nothing_came_for_a_while() -> None:
    world = World()
    world.ends["s:0"] = 3
    world.script = {6.0: world.land("s:1"), 6.1: world.land("s:2"), 14.0: world.land("s:0", 2)}
    seen = world.serve(Terms(10.0, 300.0))
    assert committed(seen) == [("s:0", 0, 3), ("s:1", 0, 1), ("s:0", 3, 5)], (
        "and what is another worker's is left to it"
    )
    assert seen[-1][1] == RunEnd("nothing came for 10 s")
    last = max(at for at, e in seen if isinstance(e, CommittedBatch))
    assert 10.0 <= seen[-1][0] - last < 11.0
    assert all(e.run_id == "r1" for _, e in seen if isinstance(e, CommittedBatch))


def test_a_run_that_keeps_its_node_would_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.consume.end_run", lambda *_: None)
    with pytest.raises(AssertionError, match="nobody waits for it"):
        World(ends={"s:0": 1, "s:1": 0, "s:2": 0}).serve(Terms())


def test_without_linger_a_run_is_one_batch() -> None:
    world = World(ends={"s:0": 1, "s:1": 1, "s:2": 0})
    seen = world.serve(Terms(linger=0.0))
    assert committed(seen) == [("s:0", 0, 1)]
    assert not [e for _, e in seen if isinstance(e, Rest)]


def test_a_run_that_always_has_something_to_do_ends_when_its_time_is_over() -> None:
    world = World()
    world.script = {float(at): world.land("s:1") for at in range(1, 200)}
    seen = world.serve(Terms(10.0, 60.0))
    assert seen[-1][1] == RunEnd("it served for 60 s")
    assert 60.0 <= seen[-1][0] <= 60.0 + BATCH + 1


def test_a_trickle_that_comes_to_two_workers_in_turns_is_one_run_of_each_for_as_long_as_it_may_last() -> None:
    """Eight folders have a file in turn, 3 s apart, and four neighbours of them are one worker's: for 15 s nothing came, a
    run ended after 10, and each round launched another."""
    for terms, reason in ((Terms(), "it served for 300 s"), (Terms(linger=10.0), "nothing came for 10 s")):
        world = World()
        world.script = {24.0 * turn + 3 * file: world.land("s:1") for turn in range(20) for file in range(4)}
        assert world.serve(terms)[-1][1] == RunEnd(reason)


@pytest.mark.parametrize("how", ["leaves", "is gone"])
def test_a_worker_on_its_way_out_ends_its_run_after_the_batch(how: str) -> None:
    world = World(ends={"s:0": 1, "s:1": 0, "s:2": 0})
    says = Live(leaving=True)
    go = {"leaves": lambda: announce(world.tree, world.w1, says), "is gone": lambda: leave(world.tree, world.w1)}
    world.script = {1.0: go[how]}  # in the middle of the batch
    seen = world.serve(Terms())
    assert committed(seen) == [("s:0", 0, 1)]
    assert how in seen[-1][1].reason  # type: ignore[union-attr]
    assert seen[-1][0] < 5


def test_a_reason_from_outside_is_asked_for_between_two_batches() -> None:
    world = World(ends={"s:0": 1, "s:1": 0, "s:2": 0})
    asked: list[float] = []

    def find_reason() -> str:
        asked.append(world.now)
        return "somebody waits" if world.now > 4 else ""

    seen = world.serve(Terms(), find_reason)
    assert seen[-1][1] == RunEnd("somebody waits")
    assert min(asked) >= BATCH
    assert seen[-1][0] < 5


def test_a_hand_over_needs_no_launch_and_waits_for_no_run() -> None:
    """s:2 comes to w1 and s:0 goes to w2 while the run rests: the next look has the one and not the other."""
    world = World(ends={"s:0": 1, "s:1": 0, "s:2": 1})

    def hand_over() -> None:
        world.give({"w1": ("s:1", "s:2"), "w2": ("s:0",)})
        world.land("s:0")()

    world.script = {5.0: hand_over}
    seen = world.serve(Terms())
    assert committed(seen) == [("s:0", 0, 1), ("s:2", 0, 1)]
    taken = next(at for at, e in seen if isinstance(e, CommittedBatch) and e.partition == "s:2")
    assert taken <= 5.0 + 1.0 + BATCH
    assert not [e for _, e in seen if isinstance(e, DroppedPartition)]


def test_a_run_that_is_ended_in_the_middle_of_its_batch_leaves_no_node() -> None:
    world = World(ends={"s:0": 1, "s:1": 0, "s:2": 0})

    def cancel() -> None:
        assert [one.partitions for one in world.tree.runs()] == [("s:0",)]
        raise KeyboardInterrupt

    world.script = {1.0: cancel}
    with pytest.raises(KeyboardInterrupt):
        world.serve(Terms())
    assert not world.tree.runs()
    assert committed(world.serve(Terms())) == [("s:0", 0, 1)], "and nothing is lost"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from(PARTITIONS), st.integers(1, 3)), max_size=25))
def test_whatever_comes_when_runs_in_turn_consume_all_of_it_once(arrivals: list[tuple[int, str, int]]) -> None:
    world = World()
    for number, (tenths, partition, rows) in enumerate(arrivals):
        world.script[tenths / 10 + number * 1e-6] = world.land(partition, rows)
    seen: list[tuple[float, Event | Rest | RunEnd]] = []
    while world.script:
        seen += world.serve(Terms(linger=3.0, max_run=12.0))
    seen += world.serve(Terms(linger=3.0, max_run=12.0))
    for partition in PARTITIONS[:2]:
        mine = [(start, end) for p, start, end in committed(seen) if p == partition]
        assert [start for start, _ in mine] == [0, *(end for _, end in mine[:-1])] if mine else True
        assert (mine[-1][1] if mine else 0) == world.ends[partition]


def test_a_click_waits_for_a_partition_that_a_run_works_on_and_for_no_other() -> None:
    world = World(ends={"s:0": 2, "s:1": 0, "s:2": 1})
    node = register_run(world.tree, "elder", world.w1, ("s:0",))
    world.script = {7.0: lambda: end_run(world.tree, node)}
    asked = (*PARTITIONS, "s:9")
    told = answer(world.tree, PIPELINE, asked, "click", world.ports, wait=world.pass_time)
    by = {e.partition: (who, type(e)) for who, e in told}
    assert by == {
        "s:0": (world.w1, CommittedBatch),
        "s:1": (world.w1, IdlePartition),
        "s:2": (world.w2, CommittedBatch),
        "s:9": ("", DroppedPartition),
    }
    assert 7.0 <= world.now < 7.0 + 2 * BATCH + 1
