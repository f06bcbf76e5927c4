"""The demo's flights in a topic: what is produced by months is what the verifier's own consumer finds."""

import pyarrow.csv as pcsv
import pytest

from rota.demo.landed_topic import LandedTopic
from rota.local import flights_topic
from rota.local.flights_topic import FlightsTopic
from tests.dataplane.kafka.broker import Broker

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
