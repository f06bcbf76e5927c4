"""What a user declares to read numbered queues of RabbitMQ."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.dataplane.rabbitmq.queues import LONGEST_NAME
from rota.errors import ConfigError
from rota.pipeline import WRAPPED


@dataclass(frozen=True, slots=True)
class RabbitQueues:
    """Queues as a source: `<prefix><n>` is the partition of key `<n>`, and an offset is a message's sequence in it.

    `queues` makes one and says what each option means. Raises ConfigError on a value that no run could work with."""

    url: str = field(repr=False)
    prefix: str
    count: int
    schema: str
    start: int
    max_messages: int
    max_bytes: int
    options: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.count < 1 or not self.prefix or len(f"{self.prefix}{self.count}".encode()) > LONGEST_NAME:
            raise ConfigError(
                f"prefix={self.prefix!r}, count={self.count!r}: give a prefix and a number of queues from 1"
            )
        if WRAPPED.search(re.sub("`[^`]*`", "c", self.schema)):
            raise ConfigError(f"tinyint in queues({self.prefix!r}): of JSON, Spark takes 200 for -56. Say smallint")
        if self.start < 0 or min(self.max_messages, self.max_bytes) < 1:
            raise ConfigError(f"queues({self.prefix!r}): start must be >= 0, max_messages and max_bytes >= 1")

    @property
    def texts(self) -> tuple[str, ...]:
        """See `DeclaredSource.texts`."""
        return self.url, *map(str, self.options.values())


def queues(
    url: str,
    *,
    prefix: str,
    count: int,
    schema: str,
    start: int = 0,
    max_messages: int = 50_000,
    max_bytes: int = 256 << 20,
    options: Mapping[str, str] | None = None,
) -> RabbitQueues:
    """Declares the queues `<prefix>0` to `<prefix><count - 1>` as a source. Each is a partition; its messages have what
    `rota.rabbitmq.Publisher` gives them, and each body is one JSON object.

    `url` is `amqp://user:password@host:port/vhost`; it may hold `${VAR}`, which a run fills in from its environment.
    `schema` is Spark DDL, such as "id long, shop string". A column that a message lacks is null.
    `start` is the sequence at which a queue begins that the pipeline sees for the first time.
    `max_messages` and `max_bytes` bound what one run holds in memory of all its queues, in even shares; of each queue it
    takes one message at least.
    `options` go to Spark's parser of JSON as they are.

    Raises ConfigError on a bad value.
    """
    return RabbitQueues(
        url=url,
        prefix=prefix,
        count=count,
        schema=schema,
        start=start,
        max_messages=max_messages,
        max_bytes=max_bytes,
        options=options or {},
    )


class RabbitStreams(RabbitQueues):
    """Streams as a source: `<prefix><n>` is the partition of key `<n>`, and an offset is the broker's."""


def streams(
    url: str,
    *,
    prefix: str,
    count: int,
    schema: str,
    start: int = 0,
    max_messages: int = 50_000,
    max_bytes: int = 256 << 20,
    options: Mapping[str, str] | None = None,
) -> RabbitStreams:
    """Declares the streams `<prefix>0` to `<prefix><count - 1>` as a source: see `queues`. A message needs no header.

    `start` is the offset at which a stream begins that the pipeline sees for the first time, or the first that is left."""
    return RabbitStreams(
        url=url,
        prefix=prefix,
        count=count,
        schema=schema,
        start=start,
        max_messages=max_messages,
        max_bytes=max_bytes,
        options=options or {},
    )
