"""Kafka, as pipeline files import it: `rota.kafka.kafka`."""

from rota.dataplane.kafka.declaration import kafka

__all__ = ["kafka"]
