"""Reads a Spark task's share of a topic. The module is sent to Spark's workers as code: it needs pyarrow and confluent-kafka
there, and nothing of rota.

Invariant: a share is ranges of offsets. The task reads each range to its end or fails. A range has ended when a record at or
beyond its last offset arrived, or when the consumer's position is at or beyond its end: there may be holes. Records of
aborted transactions are left out. A record outside its range is dropped by its offset, before anything else of it is read.

A task fails if for `SILENCE` seconds no record arrives and the position of no partition changes. `REFUSED` finds the error
of a task whose login, or right to the topic, the broker refused. A task holds about `ROOM` bytes of records at a time (keys
and headers included), or one record, for any number of partitions and any size of records.

No consumer is reused: a new one returns its first records after 0.1 s, but a used one waits up to half a second for the
answer to its last request.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any

import pyarrow as pa

SILENCE = 20.0  # seconds
POLL = 0.02  # seconds of one poll, in which records of any size may arrive
MAX_RECORDS = 10_000  # of an Arrow batch
ROOM = 16 << 20  # bytes of records of an Arrow batch, and of those that a consumer fetches ahead
SAMPLE = 16  # records of the first poll, whose size is unknown, and records of a batch whose headers are measured
MIN_SHARE = 10_000  # offsets of a share; fewer are not worth a consumer
STATISTICS_MS = 500  # how often librdkafka reports the positions of a consumer
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIME = pa.timestamp("us", "UTC")
NO_TIME = -1  # the timestamp of a record whose producer gave none
TIMES = range(-62_135_596_800_000, 253_402_300_800_000)  # ms since 1970 of the years 1 to 9999
REFUSED = re.compile(r"^\s*ConnectionError: Kafka refused (?:(?P<login>the login)|access): (?P<why>.*)", re.M)
UNREADABLE = (None, None)  # in place of headers of which a name is not UTF-8: a header always has a name

_call_headers = methodcaller("headers")


def read_headers(record: Any) -> list[dict[str, Any]] | None:
    """Return the headers of a record; None if it has none, `UNREADABLE` alone if a name is not UTF-8.

    For such a name `Message.headers()` sets an error and returns a list that has a null pointer. CPython raises SystemError
    where it checks the result, as it does below `methodcaller`. It does not check a plain call in a hot loop, and the
    process crashes. A second call would return the list without an error, so the list is replaced.
    """
    try:
        found = _call_headers(record)
    except (SystemError, UnicodeDecodeError):
        record.set_headers(found := [UNREADABLE])
    return [{"key": name, "value": value} for name, value in found] if found else None


def read_stamp(record: Any) -> int | None:
    """Return the time of a record in microseconds since 1970; None if it has none, or one outside the years 1 to 9999."""
    kind, stamp = record.timestamp()
    return stamp * 1000 if kind and stamp != NO_TIME and stamp in TIMES else None


def is_refused(error: Any) -> bool:
    """Return whether the broker refuses the login of this client, or its right to the topic."""
    from confluent_kafka import KafkaError

    rights = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED
    return is_login(error) or error.code() in rights


def is_login(error: Any) -> bool:
    """Return whether the broker refuses the login of this client: its password, token or certificate."""
    from confluent_kafka import KafkaError

    return error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED)


def refuse(error: Any, why: str) -> ConnectionError:
    """Return the error of a task that `REFUSED` finds."""
    return ConnectionError(f"Kafka refused {'the login' if is_login(error) else 'access'}: {why}")


def weigh(records: Sequence[Any]) -> float:
    """Return the bytes of these records, keys and headers included. The headers are estimated from `SAMPLE` records."""
    some = records[:: -(-len(records) // SAMPLE)]
    headers = sum(len(one["key"] or "") + len(one["value"] or b"") for m in some for one in read_headers(m) or ())
    keys = sum(len(key) for m in records if (key := m.key()))
    return sum(map(len, records)) + keys + headers * len(records) / len(some)  # a Message is as long as its value


class Progress:
    """The positions of a consumer, as librdkafka reports them. They also pass aborted records, which never arrive."""

    def __init__(self, topic: str) -> None:
        self.topic, self.moved, self.positions = topic, time.monotonic(), dict[int, int]()
        self.drained = False  # whether the consumer had returned all records that it fetched

    def take(self, text: str) -> None:
        """Take a report, as `stats_cb`."""
        report = json.loads(text)["topics"].get(self.topic, {}).get("partitions", {})
        places = {int(n): one for n, one in report.items() if int(n) >= 0}  # -1: of the topic as a whole
        self.drained = not any(one["fetchq_cnt"] for one in places.values())
        before, self.positions = self.positions, {n: one["next_offset"] for n, one in places.items()}
        if before != self.positions:
            self.moved = time.monotonic()

    def find_passed(self, ends: Mapping[int, int]) -> set[int]:
        """Return the partitions whose end the consumer passed, if it has returned every record before."""
        return {n for n, end in ends.items() if self.drained and self.positions.get(n, -1) >= end}


BESIDE: Mapping[
    str, tuple[str, Any, Callable[[Any], Any]]
] = {  # name in `columns` -> Spark's type, Arrow's type, how to read it
    "key": ("binary", pa.binary(), lambda m: m.key()),
    "timestamp": ("timestamp", TIME, read_stamp),
    "headers": ("array<struct<key:string,value:binary>>", HEADERS, read_headers),
}
Share = tuple[tuple[int, int, int], ...]  # partition, start, end
Reader = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def cut(ranges: Mapping[int, tuple[int, int]], tasks: int) -> list[Share]:
    """Return the ranges as at most `tasks` shares of the same number of offsets. A long range is cut; no share has two
    ranges of one partition."""
    total = sum(end - start for start, end in ranges.values())
    count = max(1, min(tasks, total // MIN_SHARE))
    shares: list[list[tuple[int, int, int]]] = [[]]
    room = left = -(-total // count)
    for number, (start, end) in sorted(ranges.items()):
        while start < end:
            if not left:
                shares.append([])
                left = room
            taken = min(end - start, left)
            shares[-1].append((number, start, start + taken))
            start, left = start + taken, left - taken
    return [tuple(one) for one in shares]


def make_reader(
    topic: str,
    client: Mapping[str, str],
    shares: Sequence[Share],
    ids: Mapping[int, str],
    beside: Mapping[str, str],
    absent: bool,
) -> Reader:
    """Return the function for `mapInArrow` that turns numbers of shares into their records.

    Args:
        topic: its name.
        client: settings of librdkafka.
        shares: the shares, by number.
        ids: number of a partition -> its id.
        beside: name in `columns` -> column.
        absent: whether records without a value are returned.
    """

    def read_topic(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for n in batch.column(0).to_pylist():
                yield from read(topic, client, shares[n], ids, beside, absent)

    return read_topic


def read(
    topic: str, client: Mapping[str, str], share: Share, ids: Mapping[int, str], beside: Mapping[str, str], absent: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a share.

    Raises: ConnectionError, after `SILENCE` seconds without progress, or if Kafka reports an error of a partition.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    errors: list[Any] = []
    progress = Progress(topic)
    consumer = Consumer(
        {
            "group.id": "rota",
            "queued.max.messages.kbytes": max(1, ROOM >> 10),
            "queued.min.messages": 1_000_000,  # `ROOM` is the bound
            "fetch.queue.backoff.ms": 1,  # by default nothing is fetched for a second after `ROOM` was full
            "check.crcs": True,
            "log_level": 0,
            **client,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "error_cb": errors.append,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": progress.take,
        }
    )
    ends = {number: end for number, _, end in share}
    left, heard, most = dict(ends), time.monotonic(), SAMPLE
    try:
        consumer.assign([TopicPartition(topic, number, start) for number, start, _ in share])
        while left:
            came = consumer.consume(most, POLL)
            heard = max(progress.moved, time.monotonic() if came else heard)
            if time.monotonic() - heard > SILENCE:
                if refused := [one for one in errors if is_refused(one)]:
                    raise refuse(refused[-1], refused[-1].str())
                names = ", ".join(ids[n] for n in sorted(left))
                raise ConnectionError(
                    f"Connection timed out: Kafka gave nothing of {names} for {SILENCE:g} s ({errors[-1:] or 'silent'})"
                )
            found: list[Any] = []
            numbers: list[int] = []
            offsets: list[int] = []
            done = progress.find_passed(left)
            for one in came:
                if (error := one.error()) is None:
                    number, offset = one.partition(), one.offset()
                    if offset < (end := ends[number]):
                        found.append(one)
                        numbers.append(number)
                        offsets.append(offset)
                    if offset >= end - 1:
                        done.add(number)
                elif error.code() == KafkaError._PARTITION_EOF:
                    if one.offset() >= ends[one.partition()]:
                        done.add(one.partition())
                elif one.topic() is None:  # of one broker, or of the group: another broker may answer
                    errors.append(error)
                else:
                    why = f"{ids[one.partition()]}: {error.str()}"
                    raise refuse(error, why) if is_refused(error) else ConnectionError(f"Connection reset: {why}")
            if done & left.keys():
                consumer.pause([TopicPartition(topic, n) for n in done & left.keys()])
                left = {n: end for n, end in left.items() if n not in done}
            if found:
                errors.clear()
                most = max(1, min(MAX_RECORDS, 4 * most, int(ROOM * len(found) / max(1.0, weigh(found)))))
                batch = make_batch(found, numbers, offsets, ids, beside)
                batch = batch if absent else batch.filter(batch.column("value").is_valid())
                came = found = []  # free them: while Spark takes the batch, the memory holds the records once
                if batch.num_rows:
                    yield batch
                    heard = time.monotonic()  # the time that Spark took does not count
    finally:
        consumer.close()


def make_batch(
    records: Sequence[Any],
    numbers: Sequence[int],
    offsets: Sequence[int],
    ids: Mapping[int, str],
    beside: Mapping[str, str],
) -> pa.RecordBatch:
    """Return records of these partitions and offsets as Arrow: the value, the columns `beside` it, partition and offset."""
    columns = [pa.array([m.value() for m in records], pa.binary())]
    columns += [pa.array([BESIDE[name][2](m) for m in records], BESIDE[name][1]) for name in beside]
    columns += [pa.array(map(ids.__getitem__, numbers), pa.string()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["value", *beside.values(), "_partition", "_offset"])


def write_ddl(value: str, beside: Mapping[str, str]) -> str:
    """Return columns as Spark DDL: those of the value, then those `beside` it."""
    return ", ".join((value, *(f"{column} {BESIDE[name][0]}" for name, column in beside.items())))
