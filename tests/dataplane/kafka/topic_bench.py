"""A topic of its own as the suites of the ports want a source."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rota import registry
from rota.dataplane.ports import Ports
from rota.kafka import kafka
from rota.pipeline import Pipeline, delta
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.lettered import LETTERS, LetteredSource


class TopicBench:
    """A topic of its own; a record is one offset."""

    def __init__(self, folder: Path, broker: Broker, topic: str) -> None:
        self.folder, self.broker, self.topic, self.partitions = folder, broker, topic, 0

    def open(self, start: str | int = "earliest", most: int = 1000, **more: Any) -> Ports:
        declared = kafka(self.broker.servers, self.topic, schema="n int", start=start, max_records=most, **more)  # type: ignore[arg-type]
        ports = registry.open_ports(
            Pipeline(declared, delta(str(self.folder / "table")), group="g", name="p"), "g", "0" * 32
        )
        source = LetteredSource.letter(ports.source)
        return replace(ports, source=source, reread=lambda _: replace(ports, source=source))

    def stamp(self, key: str, stamps: Sequence[float]) -> None:
        self.land(key, 0)
        self.broker.produce(self.topic, LETTERS.index(key), [b"{}"] * len(stamps), stamps=stamps)

    def land(self, key: str, count: int = 1) -> None:
        if (wanted := LETTERS.index(key) + 1) > self.partitions:
            if self.partitions:
                self.broker.grow(self.topic, wanted)
            else:
                self.broker.make(self.topic, wanted)
            self.partitions = wanted
        self.broker.produce(self.topic, wanted - 1, [b'{"n": 1}'] * count)
