"""The publisher: the queue of a key, and per queue a sequence without holes, whose numbers never change their message."""

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pika
import pytest

from rota.dataplane.rabbitmq.hashing import HASHES
from rota.dataplane.rabbitmq.link import Link
from rota.dataplane.rabbitmq.publisher import Ledger, Turn
from rota.errors import ConfigError, EnvironmentFailed
from rota.rabbitmq import Publisher
from tests.dataplane.rabbitmq.broker import Broker
from tests.docs.pages import find_blocks


def damage(broker: Broker, prefix: str, queues: int, confirmed: list[bytes]) -> dict[str, int]:
    """Count the faults of the queues, and empty them: holes, numbers with two messages, confirmed messages that are
    missing."""
    holes = doubled = 0
    there: set[bytes] = set()
    for number in range(queues):
        bodies: dict[object, set[bytes]] = defaultdict(set)
        for headers, body in broker.take_all(f"{prefix}{number}"):
            bodies[headers["rota-sequence"]].add(body)
        holes += len(set(range(len(bodies))) - bodies.keys())
        doubled += sum(len(one) - 1 for one in bodies.values())
        there |= {body for one in bodies.values() for body in one}
    return {"holes": holes, "doubled": doubled, "lost": len(set(confirmed) - there)}


WHOLE = {"holes": 0, "doubled": 0, "lost": 0}


@pytest.mark.parametrize(("hash", "share"), [("modulo", 10 / 11), ("consistent", 1 / 11)])
def test_how_many_keys_move_when_a_queue_is_added(hash: str, share: float) -> None:
    choose, keys = HASHES[hash], [f"customer {n}" for n in range(20_000)]
    before, after = ([choose(key, queues) for key in keys] for queues in (10, 11))
    moved = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert abs(len(moved) / len(keys) - share) < 0.01
    assert hash == "modulo" or {b for _, b in moved} == {10}, "only to the new queue"
    for found, queues in ((before, 10), (after, 11)):
        assert max(found.count(n) for n in range(queues)) < 1.15 * len(keys) / queues


@pytest.mark.parametrize("hash", sorted(HASHES))
def test_a_key_has_the_same_queue_in_every_version(hash: str) -> None:
    expected = {"modulo": [3, 3, 8, 6], "consistent": [6, 8, 6, 5]}
    assert [HASHES[hash](key, 10) for key in ("a", "b", "Zürich", "")] == expected[hash]


def test_the_queues_survive_and_have_one_active_consumer(broker: Broker, prefix: str) -> None:
    Publisher(broker.url, prefix, 2).close()
    for durable, arguments in ((False, {"x-single-active-consumer": True}), (True, {})):
        with broker.connect() as connection, pytest.raises(pika.exceptions.ChannelClosedByBroker, match="inequivalent"):
            connection.channel().queue_declare(f"{prefix}1", durable=durable, arguments=arguments)


def test_a_key_keeps_its_order_and_its_queue(broker: Broker, prefix: str) -> None:
    sent = [(f"k{n % 7}", f"k{n % 7} {n}".encode()) for n in range(2_500)]  # more than a chunk in a queue
    with Publisher(broker.url, prefix, 2) as publisher:
        publisher.publish(sent)
        queues = {key: publisher.choose_queue(key) for key, _ in sent}
    for number in range(2):
        found = broker.take_all(f"{prefix}{number}")
        assert [headers["rota-sequence"] for headers, _ in found] == list(range(len(found)))
        assert {headers["rota-queue"] for headers, _ in found} == {f"{prefix}{number}"}
        assert [body for _, body in found] == [body for key, body in sent if queues[key] == f"{prefix}{number}"]


def test_several_publishers_share_a_sequence(broker: Broker, prefix: str) -> None:
    def publish(number: int) -> list[bytes]:
        sent = [f"k{n} of {number}".encode() for n in range(60)]
        with Publisher(broker.url, prefix, 2) as publisher:
            for start in range(0, 60, 20):
                publisher.publish((body.decode(), body) for body in sent[start : start + 20])
        return sent

    with ThreadPoolExecutor(4) as pool:
        confirmed = [body for sent in pool.map(publish, range(4)) for body in sent]
    assert damage(broker, prefix, 2, confirmed) == WHOLE


class Death(Exception):
    """Replaces a kill of the process."""


def die(*_: object) -> None:
    raise Death


def die_at(broker: Broker, prefix: str, step: int, after: bool, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether a publisher of one chunk reached this step and died there, before or after the broker confirmed it."""
    with monkeypatch.context() as patch, Publisher(broker.url, prefix, 1) as publisher:
        send, left = Link.send, [step]

        def send_or_die(self: Link, messages: list[object]) -> None:
            left[0] -= 1
            if left[0] < 0 and not after:
                raise Death
            send(self, messages)  # type: ignore[arg-type]
            if left[0] < 0:
                raise Death

        patch.setattr(Link, "send", send_or_die)
        try:
            publisher.publish([("a", f"dying {step} {after} {n}".encode()) for n in range(3)])
        except Death:
            return True
    return False


def kill_everywhere(broker: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return the faults after publishers died before and after every step, with one that succeeded after each."""
    confirmed, deaths = [], 0
    for step in range(4):
        for after in (False, True):
            deaths += die_at(broker, prefix, step, after, monkeypatch)
            confirmed.append(f"alive {step} {after}".encode())
            with Publisher(broker.url, prefix, 1) as publisher:
                publisher.publish([("a", confirmed[-1])])
    assert deaths == 8
    return damage(broker, prefix, 1, confirmed)


def test_whatever_a_publisher_dies_in_the_sequence_is_whole(
    broker: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kill_everywhere(broker, prefix, monkeypatch) == WHOLE


@pytest.mark.parametrize(
    ("forget", "damaged"),
    [
        (lambda found: Ledger(found.next), "holes"),  # the chunk that a dead publisher left is not published
        (lambda found: Ledger(found.next - len(found.chunk)), "doubled"),  # its numbers are assigned again
    ],
)
def test_without_the_chunk_of_the_ledger_the_sequence_breaks(
    broker: Broker,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    forget: Callable[[Ledger], Ledger],
    damaged: str,
) -> None:
    begin = Turn.begin
    monkeypatch.setattr(Turn, "begin", lambda self: forget(begin(self)))
    assert kill_everywhere(broker, prefix, monkeypatch)[damaged] > 0


def test_the_code_of_the_page_publishes(broker: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (one for one in find_blocks("python") if "import Publisher" in one.text)
    monkeypatch.setenv("RABBITMQ_URL", broker.url)
    exec(compile(block.text.replace('"orders"', repr(prefix)), "rabbitmq.md", "exec"), {})
    assert sum(len(broker.take_all(f"{prefix}{number}")) for number in range(10)) == 2


def test_a_publisher_that_failed_lets_the_next_one_have_the_ledger(
    broker: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Publisher(broker.url, prefix, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Turn, "write", die)
        with pytest.raises(Death):
            failed.publish([("a", b"1")])
    with Publisher(broker.url, prefix, 1) as other:
        other.publish([("a", b"2")])
    with pytest.raises(EnvironmentFailed, match="See whether it is up"):
        failed.publish([("a", b"3")])
    assert damage(broker, prefix, 1, [b"2"]) == WHOLE


def test_a_lost_sequence_is_refused(broker: Broker, prefix: str) -> None:
    Publisher(broker.url, prefix, 1).close()
    with broker.connect() as connection:
        connection.channel().queue_delete(f"{prefix}0.sequence")
    with pytest.raises(
        EnvironmentFailed, match=f"{prefix}0.sequence does not: the next number of its sequence is unknown"
    ):
        Publisher(broker.url, prefix, 1)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("amqp://guest:n0-such-word@127.0.0.1:{port}/%2f", EnvironmentFailed),
        ("amqp://guest:n0-such-word@127.0.0.1:1/%2f", EnvironmentFailed),
        ("amqp://guest:n0-such-word@127.0.0.1:x/%2f", ConfigError),
    ],
)
def test_no_error_holds_the_password(broker: Broker, url: str, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        Publisher(url.format(port=broker.port), "orders", 1)
    assert "n0-such-word" not in f"{raised.value} {raised.value.__cause__}"
    assert raised.value.__suppress_context__, "a traceback does not show what pika said"


def test_what_cannot_be_is_refused_at_once(broker: Broker) -> None:
    for prefix, queues, hash in (("", 1, "modulo"), ("a", 0, "modulo"), ("a" * 250, 1, "modulo"), ("a", 1, "md5")):
        with pytest.raises(ConfigError):
            Publisher(broker.url, prefix, queues, hash=hash)  # type: ignore[arg-type]


def test_a_ledger_is_read_as_it_was_written() -> None:
    ledgers = [Ledger(0), Ledger(3, (b"", b"\n{}", b"\xff\x00")), Ledger(2**62)]
    assert [Ledger.decode(one.encode()) for one in ledgers] == ledgers
    assert all(a != b for a, b in pairwise(ledgers))
