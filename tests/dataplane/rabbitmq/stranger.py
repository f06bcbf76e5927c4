"""A publisher and a consumer that share no code with rota."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pika

from tests.dataplane.rabbitmq.broker import Broker

SINGLE = {"x-single-active-consumer": True}


def declare(broker: Broker, *queues: str) -> None:
    """Declare durable queues with a single active consumer."""
    with broker.connect() as connection:
        for queue in queues:
            connection.channel().queue_declare(queue, durable=True, arguments=SINGLE)


def put(broker: Broker, queue: str, bodies: Mapping[int, bytes], **headers: Any) -> None:
    """Publish messages with these sequences, in this order."""
    with broker.connect() as connection:
        channel = connection.channel()
        channel.tx_select()
        for sequence, body in bodies.items():
            marks = {"rota-queue": queue, "rota-sequence": sequence, **headers}
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2, headers=marks))
        channel.tx_commit()


def remove(broker: Broker, queue: str, sequence: int) -> None:
    """Delete the message; the others keep their places."""
    with hold_messages(broker, queue, None) as held:
        held.ack([tag for tag, n in held.messages if n == sequence])


class Held:
    """The unacknowledged messages of a consumer: pairs of tag and sequence."""

    def __init__(self, channel: Any, messages: list[tuple[int, int]]) -> None:
        self.channel, self.messages = channel, messages

    def ack(self, tags: list[int]) -> None:
        for tag in tags:
            self.channel.basic_ack(tag)


@contextmanager
def hold_messages(broker: Broker, queue: str, count: int | None) -> Iterator[Held]:
    """A consumer that holds the first messages of the queue (None: all), and closes gracefully at the end."""
    with broker.connect() as connection:
        channel = connection.channel()
        ready = channel.queue_declare(queue, passive=True).method.message_count
        wanted = ready if count is None else count
        channel.basic_qos(prefetch_count=wanted)
        messages: list[tuple[int, int]] = []

        def take(_: object, method: Any, properties: Any, __: bytes) -> None:
            messages.append((method.delivery_tag, (properties.headers or {}).get("rota-sequence", -1)))

        channel.basic_consume(queue, take)
        while len(messages) < wanted:
            connection.process_data_events(1)
        yield Held(channel, messages)
