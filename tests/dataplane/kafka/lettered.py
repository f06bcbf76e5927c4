"""A topic whose partitions have the names that the suites of the ports use; Kafka's own names are numbers."""

from dataclasses import dataclass
from typing import Self

from rota.dataplane.kafka.kafka_source import KafkaSource
from rota.dataplane.ports import Source

LETTERS = ("a", "b", "c", "d", "poison")


@dataclass(frozen=True, slots=True)
class LetteredSource(KafkaSource):
    @classmethod
    def letter(cls, of: Source) -> Self:
        """The Kafka source under these names."""
        assert isinstance(of, KafkaSource)
        return cls(of.declared, of.topic, of.group, of.index)

    def number(self, partition: str) -> int:
        key = partition.removeprefix("p:")
        return LETTERS.index(key) if key in LETTERS else -1

    def name_key(self, number: int) -> str:
        return LETTERS[number]
