"""The records that a Spark task reads from its share, without Spark, on a real broker."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from rota.dataplane.kafka import reading
from rota.dataplane.kafka.topic import Topic
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.raw_records import send
from tests.waiting import wait_until

NAMES = {  # header name -> the name that a reader returns; None: not UTF-8. The library cuts a name at a NUL
    b"": "", b"a": "a", "für €😀".encode(): "für €😀", b"nul\0": "nul",
    "für".encode("latin-1"): None, b"\xff": None, b"\x80": None, b"\xed\xa0\x80": None, b"\xc0\x80": None, b"\xf0\x9f": None,
}  # fmt: skip
YEAR_1, YEAR_10000 = -62_135_596_800_000, 253_402_300_800_000
STAMPS = {  # ms since 1970 -> whether a row has it
    -1: False, 0: True, 1: True, -2: True, -5: True, -86_400_000: True, YEAR_1: True, YEAR_1 - 1: False, -(2**63) + 1: False,
    1_700_000_000_000: True, YEAR_10000 - 1: True, YEAR_10000: False, 1_700_000_000_000_000: False,
    1_700_000_000_000_000_000: False, 2**63 - 1: False,
}  # fmt: skip


def read(
    broker: Broker, topic: str, start: int, end: int, *columns: str, client: Mapping[str, str] = {}
) -> list[dict[str, Any]]:
    """Read a range of partition 0."""
    settings = {"bootstrap.servers": broker.servers, **client}
    beside = {name: f"_{name}" for name in columns}
    batches = reading.read(topic, settings, ((0, start, end),), {0: "p:0"}, beside, True)
    return [row for batch in batches for row in batch.to_pylist()]


def test_nothing_of_a_record_beyond_the_range_is_read(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range of one offset fails because of this offset only, whatever arrives with it."""
    poison, count = {3}, 6
    broker.make(topic, 1)
    broker.produce(topic, 0, (b"%d" % n for n in range(count)), key=lambda n: b"%d" % n)

    def fail(record: Any) -> bytes:
        if record.offset() in poison:
            raise OverflowError
        return bytes(record.key())

    kind, arrow, _ = reading.BESIDE["key"]
    monkeypatch.setattr(reading, "BESIDE", {**reading.BESIDE, "key": (kind, arrow, fail)})
    monkeypatch.setattr(reading, "POLL", 0.3)  # so that more than one arrives at a time
    blamed = set()
    for n in range(count):
        try:
            assert [row["_offset"] for row in read(broker, topic, n, n + 1, "key")] == [n]
        except OverflowError:
            blamed.add(n)
    assert blamed == poison


def test_header_names_that_are_not_utf8_end_no_process(broker: Broker, topic: str) -> None:
    """Each name alone, and among good ones, so often that CPython specializes the call."""
    broker.make(topic, 1)
    expected = []
    for name in NAMES:
        for names in ([name], [b"good", name, b"good"]):
            send(broker.servers, topic, names)
            texts = [NAMES.get(one, "good") for one in names]
            expected.append([(None, None)] if None in texts else [(one, b"1") for one in texts])
    for _ in range(20):
        rows = read(broker, topic, 0, len(expected), "headers")
        assert [[(one["key"], one["value"]) for one in row["_headers"]] for row in rows] == expected
        assert [row["value"] for row in rows] == [b'{"n": 1}'] * len(expected)
    assert len(read(broker, topic, 0, len(expected))) == len(expected)
    seen = Topic(topic, {"bootstrap.servers": broker.servers})
    assert wait_until(lambda: seen.weigh({0: 0})[0].get(0, 0.0)) > 0, "a busy broker may not answer in the first look"


def test_without_the_checked_call_such_a_name_ends_the_process(broker: Broker, topic: str) -> None:
    """Ablation: headers are read by a plain call, until the process dies."""
    broker.make(topic, 1)
    send(broker.servers, topic, [b"\xff"])
    code = (
        "from rota.dataplane.kafka import reading\n"
        "reading._call_headers = lambda record: record.headers()\n"
        "reading.SystemError = reading.UnicodeDecodeError = ArithmeticError\n"
        f"list(reading.read({topic!r}, {{'bootstrap.servers': {broker.servers!r}}}, ((0, 0, 1),), {{0: 'p'}}, "
        "{'headers': '_headers'}, True))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode != 0


def test_a_time_that_no_reader_can_hold_is_null(broker: Broker, topic: str) -> None:
    broker.make(topic, 1, message_timestamp_after_max_ms=str(2**63 - 1), retention_ms="-1")
    stamps = [stamp for stamp in STAMPS if stamp]  # 0: the library uses the time of the call
    producer = broker.open_producer()
    for stamp in stamps:
        producer.produce(topic, b"{}", partition=0, timestamp=stamp)
    assert producer.flush(60) == 0
    rows = [batch.column("_timestamp").cast("int64").to_pylist() for batch in _read_stamps(broker, topic, len(stamps))]
    found = [stamp for batch in rows for stamp in batch]
    assert found == [stamp * 1000 if STAMPS[stamp] else None for stamp in stamps]


def _read_stamps(broker: Broker, topic: str, end: int) -> Any:
    client = {"bootstrap.servers": broker.servers}
    return reading.read(topic, client, ((0, 0, end),), {0: "p"}, {"timestamp": "_timestamp"}, True)


@pytest.mark.parametrize("where", ["value", "key", "headers"])
def test_a_task_holds_few_large_records_wherever_their_bytes_are(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Also if no column needs keys and headers. If their bytes are not counted, everything that arrived is held."""
    large, count = os.urandom(200_000), 60
    broker.make(topic, 1)
    broker.produce(
        topic,
        0,
        [large if where == "value" else b"x"] * count,
        key=lambda _: large if where == "key" else None,
        headers=[("h", large)] if where == "headers" else None,
    )
    monkeypatch.setattr(reading, "ROOM", 1 << 20)
    monkeypatch.setattr(reading, "POLL", 1.0)  # a fast network
    held: list[int] = []
    real = reading.make_batch
    monkeypatch.setattr(reading, "make_batch", lambda found, *more: (held.append(len(found)), real(found, *more))[1])

    def read_most() -> int:
        held.clear()
        assert len(read(broker, topic, 0, count)) == count
        return max(held[1:]) * len(large)  # after the first, of `SAMPLE` records

    assert read_most() <= 1 << 20
    monkeypatch.setattr(reading, "weigh", lambda found: sum(len(m.value()) for m in found))
    assert read_most() <= 1 << 20 if where == "value" else read_most() > 4 << 20


def test_aborted_records_are_passed_at_any_speed_and_no_further_than_asked(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a slow network only aborted records arrive for longer than the reader's timeout. Without the reports of
    librdkafka the reader fails."""
    broker.make(topic, 1)
    count = 16_000
    broker.transact(topic, 0, (os.urandom(500) for _ in range(count)), commit=False)
    broker.wait_settled(topic, 0)
    broker.produce(topic, 0, [b"x"] * 5)
    monkeypatch.setattr(reading, "SILENCE", 2.0)
    reached: list[int] = []
    slow = {"fetch.message.max.bytes": "500000", "fetch.min.bytes": "50000000", "fetch.wait.max.ms": "400"}  # of 8 MB
    real = reading.Progress.take

    def take(self: reading.Progress, text: str) -> None:
        real(self, text)
        reached.append(self.positions[0])

    monkeypatch.setattr(reading.Progress, "take", take)
    assert read(broker, topic, 0, 100, client=slow) == []
    assert max(reached) < count / 2, "the reader stops soon behind its range"
    assert [row["_offset"] for row in read(broker, topic, 50, count + 6, client=slow)] == [*range(count + 1, count + 6)]
    looked = Topic(topic, {"bootstrap.servers": broker.servers, **slow})

    def find_behind() -> int:  # one poll lasts a second: on a busy machine it may return nothing
        means, behind = looked.weigh({0: 50})
        assert not means
        return behind[0] if behind[0] > 100 else 0

    assert wait_until(find_behind) <= count + 1, "the empty stretch is not part of a batch"
    monkeypatch.setattr(reading, "STATISTICS_MS", 0)
    monkeypatch.setattr(reading, "SILENCE", 0.5)  # a busy machine may stop the reader for seconds, all fetches take six
    with pytest.raises(ConnectionError, match="Kafka gave nothing of p:0"):
        read(broker, topic, 0, count + 6, client=slow)
