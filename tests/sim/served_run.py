"""A group of two workers in memory, and a run that serves one of them; time passes where the run waits or works."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rota.coordination.group_state import GroupState
from rota.coordination.membership import join
from rota.coordination.records import Head, Live, Own, Slot, Slots, encode
from rota.coordination.store import Create, Set
from rota.dataplane.ports import Ports
from rota.ledger.values import Ranges
from rota.pipeline import Pipeline, delta, files
from rota.run.consume import Event
from rota.run.serve import Rest, RunEnd, RunLimits, serve
from simulator.job import TimedJob
from simulator.memory_store import MemoryServer
from simulator.source import MemorySource
from simulator.table import MemoryTable
from tests.claiming import claim_one

PIPELINE = Pipeline(files("rows", format="json", schema="row long"), delta("table"), name="s")
PARTITIONS = ("s:0", "s:1", "s:2")
BATCH = 2.0  # seconds


@dataclass
class ServedRun:
    """Worker w1 owns s:0 and s:1, w2 owns s:2; `script` states what happens when. Waiting and Spark let time pass."""

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
        table = MemoryTable.on(pipeline="s")
        source = MemorySource(self.ends.__getitem__, lambda _: 100, lambda: None)
        job = TimedJob(self.work)
        self.ports = Ports(source, table, MemoryTable.on(pipeline="s"), job, lambda _: self.ports, lambda: self.now)

    def give(self, targets: Mapping[str, tuple[str, ...]]) -> None:
        """A new epoch with these targets, and owners that follow it."""
        self.aim(targets)
        self.follow(targets)

    def aim(self, targets: Mapping[str, tuple[str, ...]]) -> None:
        """A new epoch with these targets."""
        tree = self.tree
        epoch = tree.head().record.epoch + 1
        for worker, partitions in targets.items():
            path, there = tree.paths.assign(worker), tree.assigns().get(worker)
            record = encode(Slots(slots=(Slot(epoch=epoch, partitions=frozenset(partitions)),)))
            tree.store.multi([Set(path, record, -1) if there else Create(path, record)])
        tree.store.multi([Set(tree.paths.head, encode(Head(epoch=epoch)), -1)])

    def follow(self, targets: Mapping[str, tuple[str, ...]]) -> None:
        """The workers claim what their targets name."""
        tree = self.tree
        for worker, partitions in targets.items():
            incarnation = self.w1 if worker == "w1" else self.w2
            for partition in partitions:
                own = tree.owned((partition,))[partition]
                if own.incarnation != incarnation:
                    at = self.tree if worker == "w1" else self.other
                    claim_one(at, incarnation, partition, own.version)

    def pass_time(self, seconds: float) -> None:
        """What the script lets happen on the way."""
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

    def serve(
        self,
        limits: RunLimits,
        find_reason: Callable[[], str] = str,
        pipeline: Pipeline = PIPELINE,
        partitions: Sequence[str] = ("s:0",),
    ) -> list[tuple[float, Event | Rest | RunEnd]]:
        """What a run of w1 that was launched for these partitions yields, each with its time."""
        served = serve(
            self.tree,
            pipeline,
            self.w1,
            partitions,
            "r1",
            self.ports,
            limits,
            wait=self.pass_time,
            find_reason=find_reason,
        )
        seen = []
        for event in served:
            if isinstance(event, Rest | RunEnd):
                assert not [one for one in self.tree.runs() if one.partitions], (
                    "between two batches no hand-over waits for it"
                )
            seen.append((self.now, event))
        return seen
