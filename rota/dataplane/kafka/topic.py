"""The metadata of a topic: its id, its partitions, their first and last offsets.

Law: each request returns or raises EnvironmentFailed within `PATIENCE` seconds. The end of a partition is its last stable
offset: the transactions below it are committed or aborted, so that every reader reads the same records. rota writes only the
offsets of a consumer group, which it never reads.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from typing import Any

from rota.dataplane.kafka import reading
from rota.dataplane.kafka.declaration import SECRET
from rota.errors import ConfigError, EnvironmentFailed

PATIENCE = 10.0  # seconds
GLANCE = 1.0  # seconds
GLANCING = {  # settings of a consumer that reads only the first few records of each partition
    "enable.auto.commit": False, "auto.offset.reset": "error", "isolation.level": "read_committed",
    "fetch.message.max.bytes": 1 << 14, "queued.min.messages": 1,
}  # fmt: skip
AFRESH = "topic.metadata.refresh.interval.ms"  # the default is 5 min, in which a dead broker counts as a leader
GRANT = "Grant this user the rights Describe and Read to the topic"
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # the id that a broker without ids of topics returns
CUT = re.compile(r"log truncation detected.*broker end offset is (\d+)")
BEYOND = "out of range"  # of an offset that the retention deleted: the log was not cut
_connections: dict[tuple[tuple[str, str], ...], "Connection"] = {}  # by the settings without the secrets


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic at one moment. `id` is empty if the broker has no ids. `led` are the partitions with a leader."""

    id: str
    partitions: tuple[int, ...]
    led: frozenset[int]


class Connection:
    """A client with these settings, and its errors since the last answer. librdkafka reports a repeated error only every
    30 s."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Raises: KafkaException, if the settings cannot be used."""
        from confluent_kafka.admin import AdminClient

        self.settings, self.errors = settings, list[Any]()
        self.client = AdminClient({"log_level": 0, AFRESH: 2000, **settings, "error_cb": self.errors.append})


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic `name`; `client` are librdkafka's settings, which may hold secrets. `login` is the step after the broker
    refused them."""

    name: str
    client: Mapping[str, str]
    login: str = "See whether its login is valid"

    def __post_init__(self) -> None:
        try:
            import confluent_kafka  # noqa: F401
        except ModuleNotFoundError:
            raise ConfigError("Kafka needs the library confluent-kafka. Type: pip install confluent-kafka") from None

    @property
    def place(self) -> str:
        """The topic and its servers, for messages."""
        return f"topic {self.name} of Kafka at {self.client['bootstrap.servers']}"

    def read_metadata(self) -> TopicMetadata | None:
        """Return the current metadata; None if the topic does not exist.

        Raises: ConfigError, EnvironmentFailed.
        """
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        connection = self._connect()
        asked = connection.client.describe_topics(TopicCollection([self.name]), request_timeout=PATIENCE)
        try:
            found = self._wait(connection, asked[self.name])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._fail(connection, error) from None
        led = frozenset(one.id for one in found.partitions if one.leader is not None)
        id = str(found.topic_id)
        return TopicMetadata("" if id == NO_ID else id, tuple(sorted(one.id for one in found.partitions)), led)

    def read_firsts(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the first offset of each that the retention left."""
        from confluent_kafka.admin import OffsetSpec

        return self._list_offsets(partitions, OffsetSpec.earliest())

    def read_heads(self, partitions: Iterable[int]) -> dict[int, tuple[int, int | None]]:
        """Return the last stable offset of each, and its leader's epoch; None if the broker knows none."""
        from confluent_kafka.admin import OffsetSpec

        found = self._ask_offsets(partitions, OffsetSpec.latest())
        known = {
            n: one.leader_epoch for n, one in found.items() if one.leader_epoch is not None and one.leader_epoch >= 0
        }
        return {n: (int(one.offset), known.get(n)) for n, one in found.items()}

    def read_high_watermarks(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the end of each partition, with the records of open transactions and those behind them."""
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        found = self._ask_offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        return {n: int(one.offset) for n, one in found.items()}

    def read_newer(self, partitions: Iterable[int], seconds: float) -> dict[int, int]:
        """Return the first offset of each that is stamped at this time (seconds since 1970) or later; -1 if there is none.

        Records of open transactions count.
        """
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        then = OffsetSpec.for_timestamp(ceil(seconds * 1000))
        found = self._ask_offsets(partitions, then, IsolationLevel.READ_UNCOMMITTED)
        return {n: int(one.offset) for n, one in found.items()}

    def find_cut(self, noted: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return the partitions whose log was truncated: in this leader epoch it ends before this offset (KIP-320).

        Args:
            noted: partition -> offset, leader epoch.

        Returns: partition -> the first offset that it lost.
        Raises: EnvironmentFailed.
        """
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        if not noted:
            return {}
        errors = list[Any]()
        settings = {"enable.partition.eof": True, "isolation.level": "read_uncommitted", "fetch.wait.max.ms": 10}
        settings |= {"error_cb": errors.append}
        consumer = Consumer({"group.id": "rota", "log_level": 0, **self.client, **GLANCING, **settings})
        left, found, until = set(noted), dict[int, int](), time.monotonic() + PATIENCE
        try:
            consumer.assign([TopicPartition(self.name, n, at, leader_epoch=e) for n, (at, e) in noted.items()])
            while left:
                for one in consumer.consume(100, 0.02):
                    error = one.error()
                    if error and error.code() == KafkaError._AUTO_OFFSET_RESET:
                        if cut := CUT.search(error.str()):
                            found[one.partition()] = int(cut[1])
                        elif BEYOND not in error.str():
                            raise EnvironmentFailed(
                                f"{self.place}: {explain(KafkaException(error))}. It is tried again"
                            )
                    elif error and reading.is_refused(error):
                        raise self.refuse(error)
                    elif error and error.code() != KafkaError._PARTITION_EOF:
                        continue  # of one broker: the consumer connects to another
                    left.discard(one.partition())
                if left and time.monotonic() > until:
                    if refused := list(filter(reading.is_refused, errors)):
                        raise self.refuse(refused[-1])
                    raise EnvironmentFailed(
                        f"{self.place} did not answer within {PATIENCE:g} s whether it lost records. See whether it is up"
                    )
        finally:
            consumer.close()
        return found

    def read_stamped(self, partitions: Iterable[int], seconds: float) -> dict[int, int]:
        """Return the first offset of each whose record has this time (seconds since 1970) or a later one; -1 if none has."""
        from confluent_kafka.admin import OffsetSpec

        return self._list_offsets(partitions, OffsetSpec.for_timestamp(ceil(seconds * 1000)))

    def weigh(self, starts: Mapping[int, int]) -> tuple[dict[int, float], dict[int, int]]:
        """Read the first records from these offsets on, for `GLANCE` seconds at most.

        Returns: the mean bytes of each partition's records, if some arrived; the offset up to which each has no record.
        """
        from confluent_kafka import Consumer, TopicPartition

        progress = reading.Progress(self.name)
        more = {"statistics.interval.ms": GLANCE * 200, "stats_cb": progress.take}
        consumer = Consumer({"group.id": "rota", "log_level": 0, **self.client, **GLANCING, **more})
        found: dict[int, list[float]] = {}
        behind = dict(starts)
        try:
            consumer.assign([TopicPartition(self.name, n, at) for n, at in starts.items()])
            until = time.monotonic() + GLANCE
            while len(found) < len(starts) and time.monotonic() < until:
                for one in consumer.consume(1000, 0.02):
                    if one.error() is None:
                        number = one.partition()
                        behind[number] = behind[number] if number in found else one.offset()
                        found.setdefault(number, []).append(reading.weigh([one]))
        finally:
            consumer.close()
        if progress.drained:
            behind |= {n: max(at, progress.positions.get(n, at)) for n, at in behind.items() if n not in found}
        return {n: max(1.0, sum(sizes) / len(sizes)) for n, sizes in found.items()}, behind

    def _list_offsets(self, partitions: Iterable[int], which: Any) -> dict[int, int]:
        return {n: int(one.offset) for n, one in self._ask_offsets(partitions, which).items()}

    def _ask_offsets(self, partitions: Iterable[int], which: Any, level: Any = None) -> dict[int, Any]:
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

        asked = {TopicPartition(self.name, n): which for n in partitions}
        if not asked:
            return {}
        connection = self._connect()
        answers = connection.client.list_offsets(
            asked, isolation_level=level or IsolationLevel.READ_COMMITTED, request_timeout=PATIENCE
        )
        try:
            return {place.partition: self._wait(connection, one) for place, one in answers.items()}
        except KafkaException as error:
            raise self._fail(connection, error) from None

    def set_group_offsets(self, group: str, offsets: Mapping[int, int]) -> Callable[[], None]:
        """Set the offsets of a consumer group, so that Kafka's own tools report a lag. An error is ignored.

        Returns: a function that waits until the broker has answered.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

        places = [TopicPartition(self.name, n, offset) for n, offset in offsets.items()]
        try:
            client = self._connect().client
            answers = client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
        except (KafkaException, ConfigError):
            return lambda: None

        def wait() -> None:
            with suppress(KafkaException, Late):
                answers[group].result(PATIENCE)

        return wait

    def _connect(self) -> Connection:
        """Return the connection of these settings. A process keeps one for each, because a run polls twice a second. A
        connection with other secrets replaces the former one."""
        from confluent_kafka import KafkaException

        found = _connections.get(self._settings_without_secrets)
        if found is None or found.settings != self.client:
            try:
                found = _connections[self._settings_without_secrets] = Connection(self.client)
            except KafkaException as error:
                raise ConfigError(f"The settings of {self.place} cannot be used: {explain(error)}") from None
        return found

    @property
    def _settings_without_secrets(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(one for one in self.client.items() if not SECRET.match(one[0])))

    def _wait(self, connection: Connection, asked: "Future[Any]") -> Any:
        from confluent_kafka import KafkaError, KafkaException

        try:
            found = asked.result(PATIENCE + 1)
            connection.errors.clear()
            return found
        except Late:
            late = KafkaError(KafkaError._TIMED_OUT, f"no answer within {PATIENCE:g} s")
            raise self._fail(connection, KafkaException(late)) from None

    def _fail(self, connection: Connection, error: Exception) -> EnvironmentFailed:
        """Return the error of a request. A connection that failed is dropped: the next one reads certificates again, and a
        login that was refused is not repeated in the background."""
        error.__traceback__ = None  # its frames hold the connection, and its future holds the error
        connection.client.poll(0)
        if connection.errors:
            _connections.pop(self._settings_without_secrets, None)
        if refused := list(filter(reading.is_refused, (*connection.errors, error.args[0]))):
            return self.refuse(refused[-1])
        why = f" ({connection.errors[-1].str()})" if connection.errors else ""
        return EnvironmentFailed(f"{self.place}: {explain(error)}{why}. See whether it is up; it is tried again")

    def refuse(self, error: Any) -> EnvironmentFailed:
        """Return the error of a login, or of a right to the topic, that the broker refuses."""
        return self.refuse_for(error.str(), reading.is_login(error))

    def refuse_for(self, why: str, login: bool) -> EnvironmentFailed:
        """Return the error of a refused login, else of a refused right to the topic. Its fact `refused` ends a run."""
        what, step = ("authentication failed", self.login) if login else ("access is denied", GRANT)
        return EnvironmentFailed(
            f"{self.place}: {what} ({why.rstrip('.')})", step=f"{step}. It is tried again", refused=True
        )


def explain(error: Exception) -> str:
    """Return the text of an error of the library."""
    inner: Any = error.args[0] if error.args else error
    return f"{inner.name()}: {inner.str()}".rstrip(".") if hasattr(inner, "str") else str(inner)
