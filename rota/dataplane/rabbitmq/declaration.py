"""How a pipeline file declares numbered queues or streams of RabbitMQ as its source."""

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
    """The queues `<prefix>0` to `<prefix><count - 1>` as a source. Each is a partition. `rota.rabbitmq.Publisher` writes
    the messages with the headers that the source needs.

    Args:
        url: `amqp://user:password@host:port/vhost`; it may hold `${VAR}`, which a run reads from its environment.
        prefix: the names of the queues without their numbers.
        count: the number of queues.
        schema: Spark DDL of a body, such as "id long, shop string".
        format: "json", one object, in which a missing column is null; "csv", one line without header; or "bytes", the body
            as it is, in the one column of the schema, such as "value binary".
        start: the first sequence of a queue that the pipeline reads for the first time.
        max_messages: upper bound of the messages that a run holds in memory, over all its queues in even shares. It takes
            at least one message of each queue.
        max_bytes: the same bound in bytes.
        options: options of Spark's parser of the format.

    Raises: ConfigError, on a bad value.
    """

    KIND: ClassVar[str] = "queues"
    STARTS: ClassVar[tuple[str, ...]] = ()  # the names that `start` may be instead of a number

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
    """The streams `<prefix>0` to `<prefix><count - 1>` as a source: see `queues`. A message needs no header.

    `start` is the first offset of a stream that the pipeline reads for the first time; if the retention deleted it, the
    first offset that is left. "latest" applies to the streams that exist at the pipeline's first run; a stream that is added
    later is read from its beginning.
    """

    KIND = "streams"
    STARTS = ("latest",)


queues, streams = RabbitQueues, RabbitStreams  # as pipeline files call them
