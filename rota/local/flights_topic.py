"""Puts the flights out of New York in 2013 into a topic of Kafka: a partition a carrier, a flight a line of CSV."""

from collections.abc import Iterable
from dataclasses import dataclass

from rota.errors import EnvironmentFailed
from rota.local.flights import read_batches
from rota.local.kafka_broker import STARTING, KafkaBroker

TOPIC = "flights"


@dataclass(frozen=True, slots=True)
class NewRecords:
    """What one call of `land` gave to the broker, which confirmed it; each is an offset."""

    rows: int

    @property
    def offsets(self) -> int:
        """How many offsets they are."""
        return self.rows

    def describe(self) -> str:
        """The line that `rota demo` prints."""
        return f"{self.rows:,} flights were produced"


class FlightsTopic:
    """A topic for the year's flights. Each is produced when its month lands."""

    unit = "records"

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._waiting: dict[tuple[int, str], list[bytes]] = {}
        self.header = b""

    def prepare(self) -> "FlightsTopic":
        """Makes the topic; returns itself. Raises ConfigError without the data."""
        self.header, self._waiting = read_batches()
        self._carriers = sorted({carrier for _, carrier in self._waiting})
        self._broker.make(TOPIC, len(self._carriers))
        return self

    def land(self, months: Iterable[int]) -> NewRecords:
        """Produces the flights of `months`. Those that were do not count. Raises EnvironmentFailed."""
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
