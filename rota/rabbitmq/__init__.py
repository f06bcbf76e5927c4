"""RabbitMQ, as applications import it: `rota.rabbitmq.Publisher`."""

from rota.dataplane.rabbitmq.publisher import Publisher

__all__ = ["Publisher"]
