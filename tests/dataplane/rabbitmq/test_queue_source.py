"""Queues as a source, without Spark: the laws of every source, and no message is lost or consumed twice."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rota.dataplane.ports import ASSIGN, INSPECT, Ports, Query
from rota.dataplane.rabbitmq.inbox import Inbox
from rota.dataplane.rabbitmq.queue_source import QueueSource
from rota.dataplane.rabbitmq.queues import name_quarantine
from rota.errors import ConfigError, EnvironmentFailed
from rota.pipeline import Pipeline, delta
from rota.rabbitmq import queues
from rota.registry import open_ports
from tests.dataplane.conformance.source_suite import HoldingSuite, LeavingSuite, SourceSuite
from tests.dataplane.delta_tables import batch
from tests.dataplane.rabbitmq import stranger
from tests.dataplane.rabbitmq.broker import Broker


class QueuesBench:
    """A bench of queues; a message is one offset. Only one reader is open at a time."""

    def __init__(self, folder: Path, broker: Broker, prefix: str) -> None:
        self.folder, self.broker, self.prefix = folder, broker, prefix
        self.landed = Counter[str]()
        self.opened: list[QueueSource] = []
        stranger.declare(broker, f"{prefix}0")  # of the declared count; no test lists its key

    def open(self, start: str | int = "earliest", most: int = 1000) -> Ports:
        self.close()
        first = 0 if isinstance(start, str) else start
        source = queues(self.broker.url, prefix=self.prefix, count=1, schema="n int", start=first, max_messages=most)
        ports = open_ports(Pipeline(source, delta(str(self.folder / "table")), group="g", name="p"), "g", "0" * 32)

        def make() -> QueueSource:
            assert isinstance(ports.source, QueueSource)
            self.opened.append(replace(ports.source, keys=("a", "b", "c", "d"), inboxes={}, _strays=[]))
            return self.opened[-1]

        return replace(ports, source=make(), reread=lambda _: replace(ports, source=make()))

    def land(self, key: str, count: int = 1) -> None:
        queue, first = f"{self.prefix}{key}", self.landed[key]
        stranger.declare(self.broker, queue)
        stranger.put(self.broker, queue, dict.fromkeys(range(first, first + count), b'{"n": 1}'))
        self.landed[key] += count

    def litter(self) -> str:
        """Add a message that cannot be consumed to the quarantine queue that a run declares."""
        name = name_quarantine(self.prefix)
        with self.broker.connect() as connection:
            channel = connection.channel()
            channel.queue_declare(name, durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", name, b"?")
        return name

    def lose(self, partition: str, offset: int) -> None:
        self.close()
        stranger.remove(self.broker, f"{self.prefix}{partition.removeprefix('p:')}", offset)

    def close(self) -> None:
        for one in self.opened:
            one.close()
        self.opened.clear()


@pytest.fixture
def bench(tmp_path: Path, broker: Broker, prefix: str) -> Iterator[QueuesBench]:
    made = QueuesBench(tmp_path, broker, prefix)
    yield made
    made.close()


class TestQueueSource(SourceSuite, HoldingSuite, LeavingSuite):
    @pytest.fixture
    def place(self, bench: QueuesBench) -> QueuesBench:
        return bench


# --- what is committed ------------------------------------------------------------------------------------------------


class Drain:
    """Runs over one queue, like those of `consume`, with a table that only has the committed sequences."""

    def __init__(self, bench: QueuesBench, most: int) -> None:
        self.bench, self.most = bench, most
        self.committed: list[int] = []
        self.came: list[int] = []

    def run(self, *, acknowledge: bool = True) -> int:
        """Run once; return the table's offset after it."""
        ports = self.bench.open(most=self.most)
        source = ports.source
        assert isinstance(source, QueueSource)
        seen = source.observe(("p:a",), Query(assign=True, starts=("p:a",)))
        claimed = ports.main.claim({"p:a": 1}, seen.starts)
        source.acknowledge(claimed.offsets)
        for job in source.plan_jobs(claimed.offsets, seen.ends):
            if source.find_broken(job):
                break
            (start, end) = job["p:a"]
            inbox = source.inboxes["p:a"]
            self.committed += [n for n in sorted(inbox.bodies) if start <= n < end]
            ports.main.commit(claimed, batch(ports.main, claimed, ends={"p:a": end}))
            if acknowledge:
                source.acknowledge({"p:a": end})
        source.close()
        return int(ports.main.read_positions(("p:a",))["p:a"].offset or 0)

    def until_empty(self) -> None:
        """Run until the queue is empty; a run that is too early for a message leaves it to the next. Unacknowledged messages
        of a consumer count only after the broker has detected its end."""
        for _ in range(50):
            self.run()
            with self.bench.broker.connect() as connection:
                found = connection.channel().queue_declare(f"{self.bench.prefix}a", passive=True)
                if not found.method.message_count and not found.method.consumer_count:
                    return
        raise AssertionError("the queue does not get empty")

    def damage(self, count: int) -> dict[str, int]:
        """Count messages that were lost, doubled, or out of order."""
        found = Counter(self.committed)
        return {
            "lost": len(set(range(count)) - found.keys()),
            "doubled": sum(found.values()) - len(found),
            "overtook": sum(a > b for a, b in zip(self.committed, self.committed[1:], strict=False)),
        }


WHOLE = {"lost": 0, "doubled": 0, "overtook": 0}


def hand_over_gracefully(bench: QueuesBench, drain: Drain, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """5,000 messages: one consumer holds 2,000 of them and closes gracefully while a run already reads and receives
    newer messages first. Return the order of arrival."""
    came: list[int] = []
    take = Inbox.take

    def watch(self: Inbox, tag: int, sequence: int, body: bytes) -> None:
        came.append(sequence)
        take(self, tag, sequence, body)

    monkeypatch.setattr(Inbox, "take", watch)
    bench.land("a", 5_000)
    with stranger.hold_messages(bench.broker, f"{bench.prefix}a", 2_000) as held:
        held.channel.basic_cancel(held.channel.consumer_tags[0])  # now the next consumer is the active one
        drain.run()
    drain.until_empty()
    return came


def test_a_graceful_close_reorders_and_nothing_is_lost(bench: QueuesBench, monkeypatch: pytest.MonkeyPatch) -> None:
    drain = Drain(bench, 4_000)
    came = hand_over_gracefully(bench, drain, monkeypatch)
    assert came[0] == 2_000, "newer ones came first"
    assert came.index(0) > 1_000
    assert drain.damage(5_000) == WHOLE


def test_dropping_what_is_behind_the_table_alone_loses(bench: QueuesBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: no contiguous prefix; the run commits up to the greatest sequence that arrived."""
    monkeypatch.setattr(Inbox, "end", property(Inbox.read_end, lambda self, value: None), raising=False)
    monkeypatch.setattr(Inbox, "has", lambda self, start, end: True)
    drain = Drain(bench, 4_000)
    hand_over_gracefully(bench, drain, monkeypatch)
    assert drain.damage(5_000)["lost"] >= 1_000


def test_a_run_that_dies_before_it_acknowledges_doubles_nothing(bench: QueuesBench) -> None:
    drain = Drain(bench, 30)
    bench.land("a", 100)
    assert drain.run(acknowledge=False) == 30
    assert drain.run() == 60, "what came again was dropped, and did not stand in the way"
    drain.until_empty()
    assert drain.damage(100) == WHOLE


def test_acknowledging_before_the_table_has_it_loses(bench: QueuesBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation of the order: the run dies in place of the commit."""
    drain = Drain(bench, 30)
    bench.land("a", 100)
    source = bench.open(most=30).source
    assert isinstance(source, QueueSource)
    source.observe(("p:a",), ASSIGN)
    source.acknowledge({"p:a": 30})  # and no commit
    source.close()
    assert drain.run() == 0
    assert drain.damage(100)["lost"] == 100, "the queue waits for messages that are lost"


def test_a_message_that_is_there_twice_is_taken_once(bench: QueuesBench) -> None:
    drain = Drain(bench, 1000)
    bench.land("a", 10)
    stranger.put(bench.broker, f"{bench.prefix}a", dict.fromkeys((3, 9, 0), b'{"n": 1}'))
    drain.until_empty()
    assert drain.damage(10) == WHOLE


def test_a_sequence_beyond_32_bits_is_one(bench: QueuesBench) -> None:
    first = 2**31 - 2
    queue = f"{bench.prefix}a"
    stranger.declare(bench.broker, queue)
    stranger.put(bench.broker, queue, dict.fromkeys(range(first, first + 5), b'{"n": 1}'))
    source = bench.open(start=first).source
    assert source.observe(("p:a",), ASSIGN).ends == {"p:a": first + 5}
    assert not source.find_broken({"p:a": (first, first + 5)})


def test_where_nothing_is_new_nothing_is_missed(bench: QueuesBench) -> None:
    """Redelivered and quarantined messages count as waiting until they are read."""
    drain = Drain(bench, 1000)
    bench.land("a", 4)
    assert drain.run(acknowledge=False) == 4
    stranger.put(bench.broker, f"{bench.prefix}a", {4: b"stray"}, **{"rota-sequence": None})
    source = bench.open().source
    assert source.observe(("p:a",)).ends == {"p:a": 9}
    assert source.observe(("p:a",), ASSIGN).ends == {"p:a": 4}
    assert source.plan_jobs({"p:a": 4}, {"p:a": 4}) == ()
    drain.until_empty()
    assert drain.damage(4) == WHOLE


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"rota-sequence": None}, "it has no header rota-sequence"),
        ({"rota-sequence": "4"}, "its header rota-sequence is no number"),
        ({"rota-queue": "orders7"}, "its sequence is that of another queue: 'orders7'"),
        ({"x-death": [{"queue": "orders7", "reason": "expired"}]}, "it was dead-lettered into this queue"),
    ],
)
def test_what_cannot_be_consumed_is_set_aside_with_its_reason(
    bench: QueuesBench, headers: dict[str, object], reason: str
) -> None:
    drain = Drain(bench, 1000)
    bench.land("a", 3)
    stranger.put(bench.broker, f"{bench.prefix}a", {3: b"stray"}, **headers)
    drain.until_empty()
    assert drain.damage(3) == WHOLE
    quarantine = f"{bench.prefix}.quarantine"
    assert list_ignored(bench) == {
        quarantine: "1 message that cannot be consumed; the header rota-reason of each states why"
    }
    ((marks, body),) = bench.broker.take_all(quarantine)
    assert body == b"stray"
    assert str(marks["rota-reason"]).startswith(reason)
    assert not list_ignored(bench)


def list_ignored(bench: QueuesBench) -> Mapping[str, str]:
    return bench.open().source.observe((), INSPECT).ignored


def test_a_hole_is_reported_and_later_messages_are_held_back(bench: QueuesBench) -> None:
    drain = Drain(bench, 1000)
    bench.land("a", 10)
    bench.lose("p:a", 4)
    assert drain.run() == 4
    source = bench.open().source
    ends = source.observe(("p:a",), ASSIGN).ends
    (job,) = source.plan_jobs({"p:a": 4}, ends)
    assert job == {"p:a": (4, 5)}
    said = str(source.find_broken(job)["p:a"])
    assert f"{bench.prefix}a did not give message 4; those from 5 to 9 wait for it" in said
    assert "rota skip p:a" in said
    assert drain.damage(4) == WHOLE


def test_a_foreign_quarantine_is_reported_in_one_line(bench: QueuesBench) -> None:
    """The run that had to quarantine a message reported that the broker may be unreachable."""
    bench.land("a", 1)
    stranger.put(bench.broker, f"{bench.prefix}a", {7: b"stray"}, **{"rota-sequence": None})
    with bench.broker.connect() as connection:
        connection.channel().queue_declare(
            f"{bench.prefix}.quarantine", durable=True, arguments={"x-message-ttl": 1000}
        )
    line = rf"{bench.prefix}.quarantine was not made by rota \(PRECONDITION_FAILED.*Once it is empty, delete it"
    with pytest.raises(EnvironmentFailed, match=line):
        bench.open().source.observe(("p:a",), ASSIGN)
    with bench.broker.connect() as connection:
        connection.channel().queue_delete(f"{bench.prefix}.quarantine")
    assert bench.open().source.observe(("p:a",), ASSIGN).ends == {"p:a": 1}


# --- what is held -----------------------------------------------------------------------------------------------------


def test_bodies_are_kept_within_the_caps_and_one_at_least() -> None:
    inbox = Inbox(start=5, room=4, size=10)
    for tag, sequence in enumerate([8, 6, 4, 9, 5, 7]):
        inbox.take(tag, sequence, b"four")
    assert (inbox.start, inbox.end, inbox.is_full()) == (5, 7, True)
    assert sorted(inbox.bodies) == [5, 6]
    assert list(inbox.drop_below(7)) == [2, 4, 1], "the one behind the table too"
    large = Inbox(start=0, room=4, size=10)
    large.take(0, 0, b"x" * 100)
    large.take(1, 1, b"x")
    assert (large.end, sorted(large.bodies)) == (1, [0])


def test_a_declaration_shows_no_password_and_refuses_what_cannot_be() -> None:
    good = {"prefix": "orders", "count": 10, "schema": "n int"}
    made = queues("amqp://me:n0-such-word@host/", **good)  # type: ignore[arg-type]
    assert "n0-such-word" not in repr(made)
    bad = ({"prefix": ""}, {"count": 0}, {"start": -1}, {"max_messages": 0}, {"max_bytes": 0}, {"schema": "n tinyint"})
    for one in bad:
        with pytest.raises(ConfigError):
            queues("amqp://host", **{**good, **one})  # type: ignore[arg-type]
