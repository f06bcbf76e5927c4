"""The demo's flights in a topic: the verifier's own consumer reads what was produced month by month."""

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from rota.demo.landed_topic import LandedTopic
from rota.demo.verify import verify
from rota.local import flights_topic
from rota.local.flights_topic import FlightsTopic
from rota.local.storage import open_folder
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.topics import Worlds, commit

HEADER = b"month,carrier,flight\n"
BATCHES = {(m, c): [b"%d,%s,%d\n" % (m, c.encode(), n) for n in range(3)] for m in (1, 2, 3) for c in ("AA", "UA")}


def test_each_flight_is_found_once_at_its_partition_and_offset(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flights_topic, "TOPIC", topic)
    monkeypatch.setattr(flights_topic, "read_batches", lambda: (HEADER, {k: list(of) for k, of in BATCHES.items()}))
    flights = FlightsTopic(broker).prepare()
    assert [flights.land(months).offsets for months in ((2,), (1, 2), (1,))] == [6, 6, 0]
    rows, counts = LandedTopic(broker.servers, topic, flights.header).read("flights", pcsv.ConvertOptions())
    assert counts == {"flights:0": 6, "flights:1": 6}
    found = sorted(tuple(row.values()) for row in rows.to_pylist())
    want = [
        (m, c, n, f"flights:{i}", 3 * (2 - m) + n) for m in (1, 2) for i, c in enumerate(("AA", "UA")) for n in range(3)
    ]
    assert found == sorted(want)


def test_the_verifier_counts_each_record_that_is_lost_doubled_or_not_consumed(worlds: Worlds) -> None:
    world, broker, topic = (
        worlds.make(2, schema="month int, flight int", more=', format="csv"'),
        worlds.broker,
        worlds.topic,
    )
    landed = LandedTopic(broker.servers, topic, b"month,flight\n")
    for n in (0, 1):
        broker.produce(topic, n, [b"1,%d" % i for i in range(5)])
    world.give("0", "1")
    commit(world, "0", "1")

    def count() -> tuple[bool, int, int, int]:
        found = verify(landed, open_folder(world.table), "p")
        assert (found.files_landed, found.partitions) == (found.rows_landed, 2)
        return found.right, found.missing, found.duplicates, found.gaps

    assert count() == (True, 0, 0, 0)
    file = min((world.table / "main" / "data").rglob("*.parquet"))
    rows = pq.ParquetFile(file).read()
    for planted, damage in ((rows.slice(1), (1, 0)), (pa.concat_tables([rows, rows.slice(2, 1)]), (0, 1))):
        pq.write_table(planted, file)
        assert count() == (False, *damage, 0)
    pq.write_table(rows, file)
    broker.produce(topic, 1, [b"2,9"])
    assert count() == (False, 1, 0, 1)
