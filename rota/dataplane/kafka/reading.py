"""How a task of Spark reads its share of a topic. It runs where Spark's workers do and is sent there as code: it needs
pyarrow and confluent-kafka there, and nothing of rota.

Law: a share is ranges of offsets, and each is read to its end or the task fails. A range has ended when a record at or
beyond its last offset came, or the consumer stands at or beyond its end: there may be holes. What was aborted is left out.
A task that hears nothing for `SILENCE` seconds fails. It holds some `ROOM` of records at a time, or one, however many its
share has and however large they are.

A new consumer has its first records after 0.1 s, so none is kept: one that was used before waits up to half a second for
the answer to what it asked last.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

SILENCE = 20.0  # seconds
POLL = 0.02  # seconds: what comes meanwhile is held, also where records are suddenly larger
AT_ONCE = 10_000  # records of an Arrow batch
ROOM = 16 << 20  # bytes of values of an Arrow batch, and that a consumer fetches before they are asked for
FEW = 16  # records that are asked for before their size is known
LEAST = 10_000  # offsets for which a task of its own is worth its consumer
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIME = pa.timestamp("us", "UTC")


def read_stamp(record: Any) -> int | None:
    """The time of a record, in microseconds since 1970; None where it has none: its producer says -1 for that."""
    kind, stamp = record.timestamp()
    return stamp * 1000 if kind and stamp >= 0 else None


BESIDE: Mapping[
    str, tuple[str, Any, Callable[[Any], Any]]
] = {  # what is asked for -> Spark's type, Arrow's, how to get it
    "key": ("binary", pa.binary(), lambda m: m.key()),
    "timestamp": ("timestamp", TIME, read_stamp),
    "headers": (
        "array<struct<key:string,value:binary>>",
        HEADERS,
        lambda m: [{"key": name, "value": value} for name, value in m.headers()] if m.headers() else None,
    ),
}
Share = tuple[tuple[int, int, int], ...]  # partition, start, end


def cut(ranges: Mapping[int, tuple[int, int]], tasks: int) -> list[Share]:
    """The ranges as shares of as many offsets each, at most one for each of `tasks`: a hot range is cut into pieces, and no
    share has two of one partition."""
    total = sum(end - start for start, end in ranges.values())
    count = max(1, min(tasks, total // LEAST))
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
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` runs: of numbers of shares it makes their records. `beside` are what is asked for beside the value,
    and its columns. `absent`: with records that have no value."""

    def read_topic(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for n in batch.column(0).to_pylist():
                yield from read(topic, client, shares[n], ids, beside, absent)

    return read_topic


def read(
    topic: str, client: Mapping[str, str], share: Share, ids: Mapping[int, str], beside: Mapping[str, str], absent: bool
) -> Iterator[pa.RecordBatch]:
    """The records of a share. Raises ConnectionError."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    said: list[object] = []
    consumer = Consumer(
        {
            "group.id": "rota",
            "queued.max.messages.kbytes": max(1, ROOM >> 10),
            "queued.min.messages": 1_000_000,  # the bound is `ROOM`
            "fetch.queue.backoff.ms": 1,  # by default nothing is fetched for a second after `ROOM` was full
            "check.crcs": True,
            "log_level": 0,
            **client,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "error_cb": said.append,
        }
    )
    ends = {number: end for number, _, end in share}
    left, heard, most = set(ends), time.monotonic(), FEW
    try:
        consumer.assign([TopicPartition(topic, number, start) for number, start, _ in share])
        while left:
            came = consumer.consume(most, POLL)
            if not came and time.monotonic() - heard > SILENCE:
                names = ", ".join(ids[n] for n in sorted(left))
                raise ConnectionError(
                    f"Connection timed out: Kafka gave nothing of {names} for {SILENCE:g} s ({said[-1:] or 'silent'})"
                )
            heard = time.monotonic() if came else heard
            found = [one for one in came if one.error() is None]
            for one in came if len(found) < len(came) else ():
                if (error := one.error()) is None:
                    continue
                if error.code() == KafkaError._PARTITION_EOF:
                    if one.offset() >= ends[one.partition()]:
                        left.discard(one.partition())
                elif one.topic() is None:  # of a broker or of the group, which is not ours to need
                    said.append(error)
                else:
                    raise ConnectionError(f"Connection reset: {ids[one.partition()]}: {error.str()}")
            if not found:
                continue
            numbers, offsets = [one.partition() for one in found], [one.offset() for one in found]
            last = dict(zip(numbers, offsets, strict=True))  # of each: they come in their order
            done = {n for n, offset in last.items() if offset >= ends[n] - 1}
            if done & left:
                consumer.pause([TopicPartition(topic, n) for n in done & left])
                left -= done
            batch = make_batch(found, numbers, offsets, ids, beside)
            if done:
                batch = batch.filter(pa.array([at < ends[n] for n, at in zip(numbers, offsets, strict=True)]))
            batch = batch if absent else batch.filter(batch.column("value").is_valid())
            if batch.num_rows:
                yield batch
            # a Message's length is its value's
            most = max(1, min(AT_ONCE, 4 * most, ROOM * len(found) // max(1, sum(map(len, found)))))
    finally:
        consumer.close()


def make_batch(
    records: Sequence[Any],
    numbers: Sequence[int],
    offsets: Sequence[int],
    ids: Mapping[int, str],
    beside: Mapping[str, str],
) -> pa.RecordBatch:
    """Records of these partitions and offsets as Arrow: the value, what was asked for beside it, partition and offset."""
    columns = [pa.array([m.value() for m in records], pa.binary())]
    columns += [pa.array([BESIDE[name][2](m) for m in records], BESIDE[name][1]) for name in beside]
    columns += [pa.array(map(ids.__getitem__, numbers), pa.string()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["value", *beside.values(), "_partition", "_offset"])


def write_ddl(beside: Mapping[str, str]) -> str:
    """Spark's types of what `read` gives."""
    more = "".join(f"{column} {BESIDE[name][0]}, " for name, column in beside.items())
    return f"value binary, {more}_partition string, _offset bigint"
