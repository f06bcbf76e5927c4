"""Runs over queues of a real broker, on a real Spark and real tables."""

import json
import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rota.dataplane.rabbitmq.queue_source import QueueSource
from rota.dataplane.rabbitmq.stream_source import StreamSource
from rota.dataplane.spark import spark_job
from rota.dataplane.spark.bisection import Bisection
from rota.errors import ConfigError
from rota.ledger.values import Ranges
from rota.people.skip import skip
from rota.rabbitmq import Publisher
from rota.run.consume import CommittedBatch, IdlePartition, ParkedPartition
from rota.run.replay import ReplayedRange, replay
from rota.run.work import find_work
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.flaky_reader import Cause, fail_reader
from tests.dataplane.rabbitmq import stranger
from tests.dataplane.rabbitmq.broker import Broker
from tests.dataplane.world import World
from tests.waiting import LONG

SCHEMA = "n int, word string"
TEXT = """
from rota.rabbitmq import queues
pipeline = Pipeline(
    source=queues({url!r}, prefix={prefix!r}, count={count}, schema={schema!r}{more}),
    table=delta({{table!r}}), group="g", max_bad_ratio=1,
)
"""


def declare(broker: Broker, prefix: str, count: int, schema: str = SCHEMA, more: str = "") -> str:
    return TEXT.format(url=broker.url, prefix=prefix, count=count, schema=schema, more=more)


@pytest.fixture
def queue_world(tmp_path: Path, endpoint: str, spark: SparkSession, broker: Broker, prefix: str) -> World:
    return World(tmp_path, endpoint, declare(broker, prefix, 3), spark=spark)


def test_what_is_published_is_consumed_once(
    queue_world: World, broker: Broker, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = queue_world
    caplog.set_level(logging.INFO)
    with Publisher(broker.url, prefix, 3) as publisher:
        sent = [(f"k{n % 11}", b'{"n": %d, "word": "k%d"}' % (n, n % 11)) for n in range(300)]
        publisher.publish([*sent[:200], ("k0", b"no JSON"), ("k1", b'{"n": 1}{"n": 2}'), *sent[200:]])
        queue_of = {key: publisher.choose_queue(key) for key, _ in sent}
    world.give("0", "1", "2")
    (work,) = find_work(world.tree, world.pipeline, world.ports.source)
    assert sum(end - start for start, end in work.lags.values()) == 302
    events = world.run("0", "1", "2")
    assert all(isinstance(e, CommittedBatch) and e.lag == 0 for e in events), events
    assert sum(e.rows for e in events if isinstance(e, CommittedBatch)) == 300
    rows = log(world.table / "main").rows()
    expected = {f"p:{n}": dict.fromkeys(range(e.end), 1) for n in range(3) for e in events if e.partition == f"p:{n}"}
    bad = log(world.table / "quarantine").rows()
    for one in bad:
        del expected[one["_partition"]][one["_offset"]]  # type: ignore[index]
    assert {str(one["_reason"]).split(":")[0] for one in bad} == {"no JSON"}
    assert {one["_raw"] for one in bad} == {"no JSON", '{"n": 1}{"n": 2}'}
    assert damage(world.table / "main", expected) == NO_DAMAGE
    for key, queue in queue_of.items():
        mine = sorted((r["_offset"], r["n"]) for r in rows if r["word"] == key)
        assert [n for _, n in mine] == [n for n in range(300) if f"k{n % 11}" == key], "in the order of the key"
        assert {r["_partition"] for r in rows if r["word"] == key} == {f"p:{queue.removeprefix(prefix)}"}
    assert not any(broker.take_all(f"{prefix}{n}") for n in range(3)), "acknowledged"
    assert not find_work(world.tree, world.pipeline, world.ports.source)
    assert {type(e) for e in world.run("0", "1", "2")} == {IdlePartition}
    assert not list((world.table / "stage").iterdir())
    assert "guest:guest" not in caplog.text
    (refused,) = replay(world.tree, world.ports, {"p:0": (0, 1)}, "again")
    assert refused.reason.endswith("nothing of it can be read again. Publish again what should come again")


def test_a_body_of_csv_is_one_line_and_all_of_it(
    tmp_path: Path, endpoint: str, spark: SparkSession, broker: Broker, prefix: str
) -> None:
    """Spark's parser of one text drops everything after a line end: such a body is bad, as is a body that no line of a file
    with this schema can be."""
    text = declare(broker, prefix, 1, more=", format='csv', options={'sep': ';'}")
    world = World(tmp_path, endpoint, text, spark=spark)
    good = [b"1;a", b"2;", b'3;"b;c"\n', "4;d\u2028e\r\n".encode()]
    bad = [b"5", b"6;e;f", b"x;g", b"7;h\n8;i", b'9;"j\nk"', b"", b"  ", b"\n"]
    with Publisher(broker.url, prefix, 1) as publisher:
        publisher.publish(("k", body) for body in [*good, *bad])
    world.give("0")
    (event,) = world.run("0")
    assert isinstance(event, CommittedBatch)
    assert (event.rows, event.end) == (4, 12)
    rows = {r["_offset"]: (r["n"], r["word"]) for r in log(world.table / "main").rows()}
    assert rows == {0: (1, "a"), 1: (2, None), 2: (3, "b;c"), 3: (4, "d\u2028e")}
    why = {r["_offset"]: (r["_raw"], r["_reason"]) for r in log(world.table / "quarantine").rows()}
    assert [why[n][0] for n in range(4, 12)] == [body.decode().removesuffix("\n") for body in bad]
    wrong = "the number of fields is wrong"
    typed = [f"{wrong}, or one is not of its declared type: {name}" for name in ("word", "n")]
    assert [why[n][1] for n in (4, 5, 6)] == [typed[0], wrong, typed[1]]
    assert {why[n][1] for n in range(7, 12)} == {"not one line"}


def test_a_hole_parks_its_partition_until_it_is_skipped(queue_world: World, broker: Broker, prefix: str) -> None:
    world = queue_world
    with Publisher(broker.url, prefix, 3) as publisher:
        publisher.publish((f"k{n}", b'{"n": %d}' % n) for n in range(60))
    stranger.remove(broker, f"{prefix}1", 0)
    world.give("0", "1", "2")
    events = {e.partition: e for e in world.run("0", "1", "2")}
    parked = events["p:1"]
    assert isinstance(parked, ParkedPartition)
    assert f"{prefix}1 did not give message 0" in parked.reason
    assert parked.retry_at, "it is tried again by itself"
    assert all(isinstance(events[p], CommittedBatch) for p in ("p:0", "p:2"))
    ports = world.ports
    assert skip(world.tree, ports, "p:1") == (0, 1)
    skipped, event = world.run("1")
    assert isinstance(skipped, CommittedBatch), "what the skip took to look was given back"
    assert (skipped.start, skipped.end, skipped.rows) == (0, 1, 0), "the skip is reported"
    assert isinstance(event, CommittedBatch)
    assert (event.start, event.rows) == (1, event.end - 1)
    assert (
        sum(json.loads(str(c["rota.rows"]))["p:1"] for c in log(world.table / "main").said("commit")[-1:]) == event.rows
    )


def test_a_long_hole_is_skipped_in_one_step(queue_world: World, broker: Broker, prefix: str) -> None:
    """Its end was after the last waiting message: `--to` was refused, and without it each step skipped one message."""
    stranger.declare(broker, *(f"{prefix}{n}" for n in range(3)))
    stranger.put(broker, f"{prefix}1", dict.fromkeys(range(500, 540), b'{"n": 1}'))
    queue_world.give("1")
    (parked,) = queue_world.run("1")
    assert isinstance(parked, ParkedPartition)
    assert f"{prefix}1 did not give messages 0 to 499; those from 500 to 539 wait for it" in parked.reason
    assert parked.reason.endswith("rota skip p:1")
    for refused in (501, 700):
        ports = queue_world.ports
        with pytest.raises(ConfigError, match="Give --to 500 at most"):
            skip(queue_world.tree, ports, "p:1", refused)
        ports = queue_world.ports
    assert skip(queue_world.tree, ports, "p:1") == (0, 500)
    _, event = queue_world.run("1")
    assert isinstance(event, CommittedBatch)
    assert (event.start, event.end, event.rows) == (500, 540, 40)


def test_a_stream_is_consumed_and_replayed(
    tmp_path: Path, endpoint: str, spark: SparkSession, broker: Broker, prefix: str
) -> None:
    text = declare(broker, prefix, 2, more=", max_messages=60").replace("queues", "streams")
    with Publisher(broker.url, prefix, 2, streams=True) as publisher:
        publisher.publish((f"k{n}", b'{"n": %d}' % n) for n in range(100))
        counts = [[publisher.choose_queue(f"k{n}") for n in range(100)].count(f"{prefix}{q}") for q in range(2)]
    world = World(tmp_path, endpoint, text, spark=spark)
    assert world.ports.source.list_keys() == ("0", "1")
    world.give("0", "1")
    world.until_idle("0", "1")
    expected = {f"p:{q}": dict.fromkeys(range(count), 1) for q, count in enumerate(counts)}
    assert damage(world.table / "main", expected) == NO_DAMAGE
    assert sorted(str(r["n"]) for r in log(world.table / "main").rows()) == sorted(map(str, range(100)))
    (done,) = replay(world.tree, world.ports, {"p:0": (0, counts[0])}, "again")
    assert isinstance(done, ReplayedRange), done
    assert done.rows == counts[0]
    assert damage(world.table / "main", expected) == NO_DAMAGE


@pytest.mark.parametrize(("source", "cause"), [(QueueSource, "in company"), (StreamSource, "once")])
def test_a_message_that_can_be_read_alone_is_not_blamed(
    tmp_path: Path, endpoint: str, spark: SparkSession, broker: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch,
    source: type[QueueSource | StreamSource], cause: Cause,
) -> None:  # fmt: skip
    streams = source is StreamSource
    text = declare(broker, prefix, 1)
    world = World(tmp_path, endpoint, text.replace("queues", "streams") if streams else text, spark=spark)
    with Publisher(broker.url, prefix, 1, streams=streams) as publisher:
        publisher.publish(("k", b'{"n": %d}' % n) for n in range(2))
    world.give("0")
    fail_reader(monkeypatch, source, cause)
    events = [world.run("0")[0] for _ in range(2)]
    assert [e.end for e in events if isinstance(e, CommittedBatch)] == [1, 2], events
    assert damage(world.table / "main", {"p:0": {0: 1, 1: 1}}) == NO_DAMAGE


@pytest.mark.parametrize("streams", [False, True], ids=["queues", "streams"])
def test_a_rehearsal_takes_no_message(
    tmp_path: Path, endpoint: str, spark: SparkSession, broker: Broker, prefix: str,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, streams: bool,
) -> None:  # fmt: skip
    """It reads the newest message of a stream again, and none of a queue."""
    text = declare(broker, prefix, 1)
    world = World(tmp_path, endpoint, text.replace("queues", "streams") if streams else text, spark=spark)
    with Publisher(broker.url, prefix, 1, streams=streams) as publisher:
        publisher.publish(("k", b'{"n": %d}' % n) for n in range(3))
        world.give("0")
        world.until_idle("0")
        publisher.publish([("k", b'{"n": 3}')])
    monkeypatch.setattr(spark_job, "REHEARSAL", LONG)
    jobs: list[Ranges] = []
    real = Bisection.write_together
    monkeypatch.setattr(Bisection, "write_together", lambda self, *given: jobs.append(given[0]) or real(self, *given))
    world.ports.job.rehearse(endpoint=endpoint, run_id="run-1")
    assert "rehearsal=failed" not in caplog.text
    assert [of for job in jobs for of in job] == ["p:0"] * streams
    world.until_idle("0")
    assert damage(world.table / "main", {"p:0": dict.fromkeys(range(4), 1)}) == NO_DAMAGE


LINES = [
    '{"n": 1, "word": "w"}', "{}", '{"word": 5}', '{"n": null}', '{"n": "1"}', '{"n": 1.5}', '{"n": 2147483648}',
    "7", '"x"', "no", '{"n": 1', '{"n": 1,}', "{'n': 1}", '{"N": 4}', '{"n": 1, "n": 2}', '{"n": 1e3}', '{"n": 010}',
    '{"n": 1, "other": [1, {"a": 2}]}', '{"word": "a\\u00e9 Z\u00fcrich"}', '{"word": {"a": 1}}', '{"n": 1} ',
    ' {"n": 1}', '{"n": NaN}', '{"n": true}',
]  # fmt: skip
OTHERWISE = ['[{"n": 1}]', "", " ", "null", '{"n": 1}{"n": 2}', '{"n": 1} x', "{'n': 1}{'n': 2}"]  # bad as messages


def verdicts(table: Path) -> dict[object, object]:
    """Return offset -> the row without its partition, or the raw text of a bad record. If a column of text has an object,
    Spark keeps the blanks only when it reads a file."""
    good = {
        r["_offset"]: (r["n"], r["word"] and str(r["word"]).replace('": ', '":')) for r in log(table / "main").rows()
    }
    bad = log(table / "quarantine").rows() if (table / "quarantine").exists() else []
    return good | {r["_offset"]: r["_raw"] for r in bad}


def test_a_message_is_judged_as_a_line_of_a_file_is(
    tmp_path: Path, endpoint: str, spark: SparkSession, broker: Broker, prefix: str
) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    files = "pipeline = Pipeline(source=source(), table=delta({table!r}), max_bad_ratio=1)"
    landed = World(tmp_path / "a", endpoint, files, spark=spark)
    for number, line in enumerate(LINES):
        landed.land("0", f"{number:03}", [line])
    published = World(tmp_path / "b", endpoint, declare(broker, prefix, 1), spark=spark)
    stranger.declare(broker, f"{prefix}0")
    bodies = dict(enumerate(line.encode() for line in [*LINES, *OTHERWISE]))
    stranger.put(broker, f"{prefix}0", bodies)
    for world in (landed, published):
        world.give("0")
        (event,) = world.run("0")
        assert isinstance(event, CommittedBatch), event
    found = verdicts(published.table)
    assert {n: found[n] for n in range(len(LINES))} == verdicts(landed.table)
    assert [found[n] for n in range(len(LINES), len(bodies))] == OTHERWISE
