"""RabbitMQ, as applications and pipeline files import it: `rota.rabbitmq.Publisher`, `queues`, `streams`."""

from rota.dataplane.rabbitmq.declaration import queues, streams
from rota.dataplane.rabbitmq.publisher import Publisher

__all__ = ["Publisher", "queues", "streams"]
