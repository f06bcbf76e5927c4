"""What a user declares to read numbered queues of RabbitMQ."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, Literal

from rota.dataplane.rabbitmq.queues import LONGEST_NAME
from rota.errors import ConfigError
from rota.pipeline import check_format, check_limits, check_start

Format = Literal["csv", "json", "bytes"]
Start = Literal["latest"] | int


@dataclass(frozen=True, slots=True)
class RabbitQueues:
    """Declares the queues `<prefix>0` to `<prefix><count - 1>` as a source. Each is a partition; its messages have what
    `rota.rabbitmq.Publisher` gives them.

    `url` is `amqp://user:password@host:port/vhost`; it may hold `${VAR}`, which a run fills in from its environment.
    `schema` is Spark DDL, such as "id long, shop string".
    `format` is that of a body: "json", one object, in which a column that it lacks is null; "csv", one line without
    header; or "bytes", the body as it is, in the one column of the schema, such as "value binary".
    `start` is the sequence at which a queue begins that the pipeline sees for the first time.
    `max_messages` and `max_bytes` bound what one run holds in memory of all its queues, in even shares; of each queue it
    takes one message at least.
    `options` go to Spark's parser of the format as they are.

    Raises ConfigError on a bad value.
    """

    KIND: ClassVar[str] = "queues"
    STARTS: ClassVar[tuple[str, ...]] = ()  # names that `start` may have beside a number: a queue is only consumed

    url: str = field(repr=False)
    _: KW_ONLY
    prefix: str
    count: int
    schema: str
    format: Format = "json"
    start: Start = 0
    max_messages: int = 50_000
    max_bytes: int = 256 << 20
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.count < 1 or not self.prefix or len(f"{self.prefix}{self.count}".encode()) > LONGEST_NAME:
            raise ConfigError(
                f"prefix={self.prefix!r}, count={self.count!r}: give a prefix and a number of queues from 1"
            )
        where = f"{self.KIND}({self.prefix!r})"
        check_format(self.format, ("csv", "json", "bytes"), self.schema, self.options, where)
        check_start(self.start, self.STARTS, where)
        check_limits(self, ("max_messages", "max_bytes"), where)

    @property
    def texts(self) -> tuple[str, ...]:
        """See `DeclaredSource.texts`."""
        return self.url, *map(str, self.options.values())


class RabbitStreams(RabbitQueues):
    """Declares the streams `<prefix>0` to `<prefix><count - 1>` as a source: see `queues`. A message needs no header.

    `start` is the offset at which a stream begins that the pipeline sees for the first time, or the first that is left;
    "latest" holds for the streams that are there at the pipeline's first run: in one that appears later all is new."""

    KIND = "streams"
    STARTS = ("latest",)


queues, streams = RabbitQueues, RabbitStreams  # as pipeline files call them
