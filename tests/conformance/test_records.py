"""Laws of records: what is written is read again, everything else is Undecodable with its path, soon and without harm."""

import json
import random
import zlib
from struct import pack as struct_pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.coordination.id_set import MAX_IDS, pack, unpack
from rota.coordination.records import (
    Checkpoint,
    Controller,
    Epoch,
    Grab,
    GroupOverrides,
    Head,
    Live,
    Meta,
    Moved,
    Own,
    Parked,
    Partitions,
    Record,
    Refusal,
    Refusals,
    RunNode,
    Slot,
    Slots,
    WorkerOverrides,
    decode,
    encode,
)
from rota.coordination.store import MAX_DATA
from rota.errors import ConfigError, EnvironmentFailed, Undecodable, printable
from rota.ids import escape, is_key, is_partition

W1 = "w1@00000000000000ff"
pytestmark = pytest.mark.fast

SAMPLES: list[Record] = [
    Meta(id="0" * 32, options={"spread": True, "weights": {"cpu": 1.0}}, budget=3),
    WorkerOverrides(cordoned=True, capacity=2.5, labels={"disk": "ssd"}, max_partitions=0),
    GroupOverrides(paused=True, pins={"flights:UA": "w1"}),
    Live(endpoint="sc://127.0.0.1:15002", usage={"cpu": 0.5}, leaving=True, zone="a"),
    Partitions(keys=("AA", "UA"), requires={"disk": "ssd"}),
    Controller(term=3, absences={"w2": 12.5}, memory={"hits": {"w1": 2}}, members=(W1,)),
    Head(epoch=7, basis="abc", due=12.5),
    Slots(slots=(Slot(epoch=6, partitions=frozenset({"p:a", "p:b"})), Slot(epoch=7, partitions=frozenset()))),
    Slots(),
    Own(incarnation=W1),
    Grab(incarnation=W1),
    Own(),
    Checkpoint(offset=3, token=9, run_id="r", rows=10, seconds=0.5, epoch=7, table="t"),
    RunNode(partitions=("p:a", "p:b")),
    Parked(reason="raised ValueError", failures=2, retry_at=5.0, offset=3),
    Epoch(
        epoch=7,
        at=1.5,
        sentence="Epoch 7: w2 left.",
        moves=(Moved(partition="p:a", from_worker="w2", to_worker="w1", reason="w2 left"),),
        moved=1,
        before={"w1": 1},
        after={"w1": 2},
        measures={"imbalance_after": 1.0},
    ),
    Refusals(ring=(Refusal(partition="p:a", token=1, newer=2, run_id="r", at=3.0),)),
]
PLAIN = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}", fullmatch=True).filter(is_key)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)  # of files, in any script
IDS = st.sets(PLAIN | NAMES.map(lambda name: f"p:{escape(name)}").filter(is_partition), max_size=60)
each = pytest.mark.parametrize("record", SAMPLES, ids=lambda r: type(r).__name__)


@each
def test_what_is_written_is_read_again(record: Record) -> None:
    assert decode("/x", type(record), encode(record)) == record
    assert encode(record) == encode(record)


def test_every_record_has_a_sample() -> None:
    assert {type(r) for r in SAMPLES} == set(Record.__subclasses__())


@each
def test_whatever_else_is_there_is_undecodable_or_a_whole_record(record: Record) -> None:
    """Cuts, flips, additions and other records' bytes: one line with the path, or another valid record, never else."""
    chance = random.Random(type(record).__name__)
    data, others = encode(record), [encode(r) for r in SAMPLES]
    refused = 0
    for _ in range(1500):
        bad = bytearray(data)
        kind = chance.randrange(5)
        if kind == 0:
            bad = bad[: chance.randrange(len(bad) + 1)]
        elif kind == 1:
            bad += bytes(chance.randrange(256) for _ in range(chance.randint(1, 9)))
        elif kind == 2:
            bad = bytearray(chance.choice(others))
        else:
            for _ in range(chance.randint(1, 4)):
                bad[chance.randrange(len(bad))] = chance.randrange(256)
        found = read(type(record), bytes(bad))
        if isinstance(found, Undecodable):
            refused += 1
            assert found.path == "/rota/g/x"
            assert str(found).startswith("/rota/g/x holds no readable ")
            assert "\n" not in str(found)
            assert len(str(found)) < 400
        else:
            assert decode("/x", type(record), encode(found)) == found
    assert refused > 400


def read(model: type[Record], data: bytes) -> Record | Undecodable:
    try:
        return decode("/rota/g/x", model, data)
    except Undecodable as error:
        return error


@each
def test_a_newer_format_is_not_understood(record: Record) -> None:
    """An older rota stops instead of overwriting what it cannot read."""
    data = encode(record)
    if record.deflated:
        data = zlib.decompress(data)
    newer = data.replace(b'"v":1' if b'"v":1' in data else b'"v": 1', b'"v":2', 1)
    with pytest.raises(Undecodable, match="v: "):
        decode("/x", type(record), zlib.compress(newer) if record.deflated else newer)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (Checkpoint, '{"v":1,"offset":true,"token":1,"run_id":""}'),
        (Checkpoint, '{"v":1,"offset":-1,"token":1,"run_id":""}'),
        (Checkpoint, '{"v":1,"offset":9223372036854775808,"token":1,"run_id":""}'),
        (Checkpoint, '{"v":1,"offset":1.0,"token":1,"run_id":""}'),
        (Checkpoint, '{"v":1,"offset":"1","token":1,"run_id":""}'),
        (Checkpoint, '{"v":1,"token":1,"run_id":""}'),
        (Live, '{"v":1,"capacity":NaN}'),
        (Live, '{"v":1,"capacity":0}'),
        (Live, '{"v":1,"capacity":true}'),
        (Live, '{"v":1,"usage":{"cpu":-1}}'),
        (Live, '{"v":1,"unknown":NaN}'),
        (Own, '{"v":1,"incarnation":"w1"}'),
        (Own, '{"v":1,"incarnation":""}'),
        (Own, ""),
        (Own, "null"),
        (Own, "[" * 100_000),
        (GroupOverrides, '{"v":1,"pins":{"../x":"w1"}}'),
        (Meta, '{"v":1,"id":"x"}'),
        (Slots, '{"v":1,"slots":[]}'),
        (Slots, '{"v":1,"slots":[{"epoch":1,"bytes":5}]}\nIDS1'),
        (Partitions, '{"v":1,"keys":["a"]}'),
    ],
)
def test_bounds_and_types_are_strict(model: type[Record], text: str) -> None:
    with pytest.raises(Undecodable):
        decode("/x", model, text.encode())


def test_slots_out_of_order_are_undecodable() -> None:
    one = pack(["a"])
    for epochs in ([2, 1], [1, 1]):
        line = json.dumps({"v": 1, "slots": [{"epoch": e, "bytes": len(one)} for e in epochs]}).encode()
        with pytest.raises(Undecodable, match="out of order"):
            decode("/x", Slots, line + b"\n" + one + one)


@pytest.mark.parametrize("model", [Controller, Epoch, Refusals])
def test_a_bomb_is_refused_within_bounds(model: type[Record]) -> None:
    bomb = zlib.compress(b" " * 50_000_000, 9)
    assert len(bomb) < MAX_DATA
    with pytest.raises(Undecodable, match="too long"):
        decode("/x", model, bomb)
    packed = struct_pack("!4sII", b"IDS1", MAX_IDS, zlib.crc32(bomb)) + bomb
    with pytest.raises(ValueError):
        unpack(packed)


def test_what_would_not_fit_into_a_node_is_refused_with_the_numbers() -> None:
    chance = random.Random(1)
    keys = tuple({"".join(chance.choices("0123456789abcdef", k=60)) for _ in range(30_000)})
    with pytest.raises(ConfigError, match=r"Partitions takes \d+ bytes, above 700000"):
        encode(Partitions(keys=keys))
    with pytest.raises(ConfigError, match="bad id 'a  b'"):
        encode(Slots(slots=(Slot(epoch=1, partitions=frozenset({"a  b"})),)))


@settings(max_examples=200)
@given(IDS)
def test_packed_ids_are_read_again_sorted(ids: set[str]) -> None:
    data = pack(ids)
    assert unpack(data) == tuple(sorted(ids, key=str.encode))
    assert pack(sorted(ids, reverse=True)) == data


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_unpacking_anything_else_is_a_value_error(data: bytes) -> None:
    for candidate in (data, b"IDS1" + data, struct_pack("!4sII", b"IDS1", 1, zlib.crc32(data)) + data):
        with pytest.raises(ValueError):
            unpack(candidate)
    body = zlib.compress(data)
    try:
        ids = unpack(struct_pack("!4sII", b"IDS1", 1, zlib.crc32(body)) + body)
    except ValueError:
        return
    assert len(ids) == 1


def test_ids_that_follow_each_other_take_next_to_nothing() -> None:
    ids = [f"flights:{i:06d}" for i in range(MAX_IDS)]
    assert len(pack(ids)) < 10_000
    with pytest.raises(ValueError, match="above 100000"):
        pack([*ids, "more"])


@given(st.text(st.characters(), max_size=60))
def test_any_text_goes_into_a_record_an_error_and_an_encoding(text: str) -> None:
    """What users' code raises, and what files are called, may be anything: lone surrogates, escapes, line ends."""
    said = str(EnvironmentFailed(text))
    assert said.isprintable()
    assert said.encode().decode() == said
    assert decode("/p", Parked, encode(Parked(reason=said[:2000]))).reason == said
    assert printable(said) == said
