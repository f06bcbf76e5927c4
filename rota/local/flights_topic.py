"""Produces the flights out of New York in 2013 to a Kafka topic: a partition per carrier, a record of CSV per flight."""

from collections.abc import Iterable
from dataclasses import dataclass

from rota.errors import EnvironmentFailed
from rota.local.flights import read_batches
from rota.local.kafka_broker import STARTING, KafkaBroker

TOPIC = "flights"


@dataclass(frozen=True, slots=True)
class NewRecords:
    """The records that one call of `land` produced and the broker confirmed."""

    rows: int

    @property
    def offsets(self) -> int:
        """Return the number of their offsets."""
        return self.rows

    def describe(self) -> str:
        """Return the line that `rota demo` prints."""
        return f"{self.rows:,} flights were produced"


class FlightsTopic:
    """A topic for the year's flights. Each is produced when its month lands."""

    unit = "records"

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._waiting: dict[tuple[int, str], list[bytes]] = {}
        self.header = b""

    def prepare(self) -> "FlightsTopic":
        """Make the topic, and return itself. Raises ConfigError without the data."""
        self.header, self._waiting = read_batches()
        self._carriers = sorted({carrier for _, carrier in self._waiting})
        self._broker.make(TOPIC, len(self._carriers))
        return self

    def land(self, months: Iterable[int]) -> NewRecords:
        """Produce the flights of `months` that were not produced before. Raises EnvironmentFailed."""
        from confluent_kafka import Producer

        producer, wanted, rows = Producer({"bootstrap.servers": self._broker.servers}), set(months), 0
        failed: list[object] = []

        def note(error: object, _: object) -> None:
            if error:
                failed.append(error)

        for month, carrier in sorted(key for key in self._waiting if key[0] in wanted):
            for line in self._waiting.pop((month, carrier)):
                producer.produce(
                    TOPIC,
                    line.rstrip(b"\r\n"),
                    partition=self._carriers.index(carrier),
                    on_delivery=note,
                )
                rows += 1
            producer.flush(STARTING)
        if failed or len(producer):
            raise EnvironmentFailed(f"Kafka refused flights ({failed[:1] or 'it is silent'}). See its log")
        return NewRecords(rows)
