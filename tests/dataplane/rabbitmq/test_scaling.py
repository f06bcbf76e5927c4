"""The StatefulSet article under two protocols: ten queues over three workers, then four, while a publisher runs."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rota.coordination.alone import found_own_records
from rota.coordination.publication import publication_of, publish, take_control
from rota.coordination.records import Live
from rota.coordination.snapshot import read_snapshot
from rota.core import Policy, plan
from rota.dataplane.rabbitmq.queue_source import QueueSource
from rota.group.agent import Agent
from rota.rabbitmq import Publisher
from rota.run.consume import CommittedBatch, IdlePartition, consume
from rota.run.work import Work, find_work
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.rabbitmq.broker import Broker
from tests.dataplane.world import World
from tests.waiting import wait_until

QUEUES, KEYS = 10, 50
TEXT = """
from rota.rabbitmq import queues
pipeline = Pipeline(
    source=queues({url!r}, prefix={prefix!r}, count=10, schema="n int, word string", max_messages=300),
    table=delta({{table!r}}), group="g",
)
"""


class Stage:
    """The real agents over a store in memory, the real planner, and real runs of partitions that lag."""

    def __init__(self, world: World, protocol: str) -> None:
        self.world, self.protocol = world, protocol
        world.tree.found(protocol=protocol)
        self.agents: list[Agent] = []
        keys = world.ports.source.list_keys()
        world.tree.grow(world.pipeline.name, keys)
        found_own_records(world.tree, map(world.pipeline.partition, keys))

    def join(self, owned: list[int], *workers: str) -> None:
        """Let these workers join, and all workers hand over until each owns so many."""
        live = Live(endpoint=self.world.endpoint)
        for worker in workers:
            agent = Agent(self.world.open(), worker, live, lambda *_, **__: None, max_shutdown=60, session_timeout=10)
            self.agents.append(agent)
        self.cycle()
        if self.protocol == "assigned":
            look = read_snapshot(self.world.tree)
            moves = plan(look.snapshot, policy=Policy(grace=look.basis.meta.grace))
            publish(self.world.tree, take_control(self.world.tree), publication_of(look, moves))
        wait_until(lambda: self.cycle() or self.owned() == owned)

    def cycle(self) -> None:
        for agent in self.agents:
            for _ in agent.cycle():
                pass

    def owned(self) -> list[int]:
        """Return how many partitions each worker owns, sorted."""
        owners = [own.incarnation for own in self.world.tree.owned().values()]
        return sorted(owners.count(one.state.incarnation) for one in self.agents)

    def run(self) -> int:
        """Run at the same time for each worker that lags. Return the number of runs."""
        works = find_work(self.world.tree, self.world.pipeline, self.world.ports.source)
        with ThreadPoolExecutor(4) as pool:
            for events in pool.map(self._consume, works):
                assert all(isinstance(one, CommittedBatch | IdlePartition) for one in events), events
        return len(works)

    def _consume(self, work: Work) -> Sequence[Any]:
        self.world.runs += 1
        tree, ports = self.world.open(), self.world.ports
        name = f"run{self.world.runs}-{work.worker}"
        try:
            return list(consume(tree, self.world.pipeline, work.incarnation, tuple(work.lags), name, ports))
        finally:
            tree.store.close()


@pytest.mark.parametrize(
    ("protocol", "three", "four"), [("assigned", [3, 3, 4], [2, 2, 3, 3]), ("ordinal", [3, 3, 4], [2, 2, 2, 4])]
)
def test_ten_queues_over_three_workers_then_four(
    protocol: str,
    three: list[int],
    four: list[int],
    tmp_path: Path,
    endpoint: str,
    spark: SparkSession,
    broker: Broker,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[str, bytes]] = []

    def publish_some(publisher: Publisher, count: int) -> None:
        first = len(sent)
        fresh = [(f"k{n % KEYS}", b'{"n": %d, "word": "k%d"}' % (n, n % KEYS)) for n in range(first, first + count)]
        sent.extend(fresh)
        publisher.publish(fresh)

    with Publisher(broker.url, prefix, QUEUES) as publisher:
        world = World(tmp_path, endpoint, TEXT.format(url=broker.url, prefix=prefix), spark=spark)
        stage = Stage(world, protocol)
        stage.join(three, "rota-0", "rota-1", "rota-2")
        publish_some(publisher, 1_500)  # more than the caps of a run
        with ThreadPoolExecutor(1) as pool, monkeypatch.context() as patch:
            patch.setattr(QueueSource, "acknowledge", lambda *_: None)  # runs that die after the commit of their batch
            also = pool.submit(publish_some, publisher, 500)
            assert stage.run() == 3
            also.result()
        stage.join(four, "rota-3")
        assert stage.run() == 4
        publish_some(publisher, 500)
        while stage.run():
            pass
        queue_of = {key: publisher.choose_queue(key) for key, _ in sent}
    counts = {f"p:{n}": sum(queue_of[key] == f"{prefix}{n}" for key, _ in sent) for n in range(QUEUES)}
    expected = {p: dict.fromkeys(range(count), 1) for p, count in counts.items()}
    assert damage(world.table / "main", expected) == NO_DAMAGE
    rows = log(world.table / "main").rows()
    for key in queue_of:
        of_key = sorted((r["_offset"], r["n"]) for r in rows if r["word"] == key)
        assert [n for _, n in of_key] == [n for n in range(len(sent)) if f"k{n % KEYS}" == key]
    assert not any(broker.take_all(f"{prefix}{n}") for n in range(QUEUES))
