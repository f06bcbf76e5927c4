"""Avro files without Spark: their records are fastavro's, and a file that is not whole is refused."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane.files import avro_container, avro_reading
from rota.dataplane.files.avro_container import UNPACK, Share, Source, UnreadableAvroError
from rota.dataplane.files.avro_reading import CHANGE, count_records, explain_misfit, parse_reader
from rota.dataplane.formats.avro import Decoder
from rota.errors import ConfigError
from rota.pipeline import files
from tests.dataplane import avro_cases as cases
from tests.dataplane.avro_cases import Record, pack, write_file

NUMBERS = pa.schema([("n", pa.int32())])
COUNT = 40


def read(data: bytes, kinds: pa.Schema = NUMBERS, size: int | None = None) -> list[dict[str, Any]]:
    """The records of a file that the index knows with this size."""
    size = len(data) if size is None else size
    return read_share(data, Share("a/0.avro", "a/0.avro", size, "p:a", 7, 0, size), kinds)


def read_share(data: bytes, share: Share, kinds: pa.Schema) -> list[dict[str, Any]]:
    batches = avro_container.read_records(Source(io.BytesIO(data), share.size), share, kinds, None, {})
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert {(row.pop("_partition"), row.pop("_offset")) for row in rows} <= {("p:a", 7)}
    return rows


def explain(data: bytes, **more: Any) -> str:
    try:
        return f"{len(read(data, **more))} records"
    except UnreadableAvroError as error:
        return str(error)


def write_numbers(begin: int = 0, codec: str = "null") -> bytes:
    """A file with a block for each ten numbers."""
    records = [{"n": 0x2000 + begin + n} for n in range(COUNT)]  # three bytes each
    return pack(write_file({"n": "int"}, records, sync_interval=30), codec)


def find_ends(data: bytes) -> list[int]:
    """The places behind each sync marker."""
    marker = data[-16:]
    return [at + 16 for at in range(len(data)) if data.startswith(marker, at)]


@pytest.mark.parametrize("codec", sorted(UNPACK))
@given(made=cases.records(2), data=st.data())
def test_each_record_is_fastavros(codec: str, made: Record, data: st.DataObject) -> None:
    kind = made.kind
    records = data.draw(st.lists(kind.values, max_size=5))
    plain = write_file(kind.schema, records, sync_interval=data.draw(st.sampled_from((1, 16000))))
    expected = [cases.show(one, kind.column) for one in fastavro.reader(io.BytesIO(plain))]
    assert read(pack(plain, codec), pa.schema(list(kind.column))) == expected


def test_what_fastavro_deflates_is_read() -> None:
    """It writes three bytes of a checksum behind the stream."""
    assert len(read(write_file({"n": "int"}, [{"n": n} for n in range(9)], "deflate"))) == 9


@pytest.mark.parametrize("codec", sorted(UNPACK))
@given(data=st.data())
def test_a_file_that_was_cut_or_changed_never_has_other_records_than_it_states(codec: str, data: st.DataObject) -> None:
    """A file that is cut right behind a sync marker is a whole one to Avro."""
    whole = write_numbers(codec=codec)
    ends = find_ends(whole)
    cut = data.draw(st.integers(0, len(whole)))
    found = explain(whole[:cut])
    assert found == f"{10 * ends.index(cut)} records" if cut in ends else not found.endswith(" records")
    at, bit = data.draw(st.integers(ends[0], len(whole) - 1)), data.draw(st.integers(0, 7))
    hurt = bytearray(whole)
    hurt[at] ^= 1 << bit
    found = explain(bytes(hurt))
    assert found == f"{COUNT} records" or found.endswith((avro_container.AGAIN, "Bring a whole file"))


def change(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1, data
    return data.replace(old, new)


WHOLE = write_numbers()
BEGIN = find_ends(WHOLE)[0]
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "no bytes": (lambda: b"", "has no bytes, which is no Avro. Write the file again"),
    "text": (lambda: b'{"n": 1}\n', "is no Avro: it does not begin with Obj and 1. Land Avro's object container files"),
    "three bytes": (lambda: b"Obj", "is no Avro: "),
    "half": (lambda: WHOLE[:-20], "ends within a block, at byte "),
    "a header alone": (lambda: WHOLE[:BEGIN], "0 records"),
    "half a header": (lambda: WHOLE[:20], "ends within a block, at byte 20. Bring a whole file"),
    "two files": (
        lambda: WHOLE * 2,
        f"has another Avro file behind it, at byte {len(WHOLE)}. Land each as a file of its own",
    ),
    "no schema": (lambda: change(WHOLE, b"avro.schema", b"avro.scheme"), "has no schema in its header"),
    "another codec": (
        lambda: change(WHOLE, b"\x08null", b"\x06lz4"),
        "is compressed with 'lz4'. Write it with null, deflate, snappy, zstandard, bzip2 or xz",
    ),
    "the wrong codec": (
        lambda: change(WHOLE, b"\x08null", b"\x0csnappy"),
        f"is damaged: the block at byte {BEGIN + 2} is no snappy (",
    ),
    "a count below zero": (
        lambda: WHOLE[:BEGIN] + b"\x03" + WHOLE[BEGIN + 1 :],
        f"is damaged: the block at byte {BEGIN} has -2 records",
    ),
    "an endless number": (lambda: WHOLE[:BEGIN] + b"\xff" * 20, "is damaged: a number before byte"),
    "more records than it has": (
        lambda: WHOLE[:BEGIN] + b"\x18" + WHOLE[BEGIN + 1 :],
        f"does not decode behind record 10, in the block at byte {BEGIN}: EOFError. Write the file again",
    ),
    "a text that is not UTF-8": (
        lambda: change(write_file({"n": "string"}, [{"n": "ok"}, {"n": "bad"}]), b"bad", b"b\xe9d"),
        "does not decode behind record 1, in the block at byte ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_not_whole_is_refused_with_the_reason(name: str) -> None:
    make, said = REFUSED[name]
    kinds = pa.schema([("n", pa.string())]) if "UTF-8" in name else NUMBERS
    assert explain(make(), kinds=kinds).startswith(said)


def test_a_value_that_its_column_does_not_hold_is_refused_with_its_record() -> None:
    """fastavro rounds a decimal with more digits than its schema has."""
    decimal = cases.logical("bytes", "decimal", precision=4, scale=2)
    plain = write_file({"n": "bytes"}, [{"n": b"\x01"}, {"n": b"\x01\x00\x00"}])
    schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "n", "type": decimal}]}).encode()
    before = fastavro.reader(io.BytesIO(plain)).metadata["avro.schema"].encode()
    data = change(plain, cases.encode_long(len(before)) + before, cases.encode_long(len(schema)) + schema)
    assert explain(data, kinds=pa.schema([("n", pa.decimal128(4, 2))])).startswith(
        "has a value in record 2 that the column does not hold: n: "
    )


def test_pieces_of_a_file_have_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each between two blocks, and a reason names the record by its place in the file."""
    monkeypatch.setattr(avro_reading, "PIECE", 40)
    (tmp_path / "0.avro").write_bytes(WHOLE)
    counted = count_records(tmp_path / "0.avro", len(WHOLE))
    assert counted is not None
    assert (counted.records, [before for _, before in counted.cuts]) == (
        COUNT,
        [0, 0, 10, 20, 30],
    )  # the first piece is the header
    ends = [*(at for at, _ in counted.cuts[1:]), len(WHOLE)]
    shares = [
        Share("", "", len(WHOLE), "p:a", 7, start, end, before)
        for (start, before), end in zip(counted.cuts, ends, strict=True)
    ]
    assert [row for one in shares for row in read_share(WHOLE, one, NUMBERS)] == read(WHOLE)
    hurt = bytearray(WHOLE)
    hurt[shares[3].start] += 2
    with pytest.raises(
        UnreadableAvroError, match=f"behind record 30, in the block at byte {shares[3].start}: EOFError"
    ):
        read_share(bytes(hurt), shares[3], NUMBERS)


def name_fields(**fields: Any) -> str:
    return json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    )


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (name_fields(n="int", more="string"), ""),
        (name_fields(n="int").replace("type", "tipe"), "has a schema that is none ("),
        ('"int"', "has values of type int, and no records. Land records"),
        (
            name_fields(n="long"),
            f"has another schema than files(...): n is of another type in it. Declare bigint. {CHANGE}",
        ),
        (name_fields(N="int"), f"has another schema than files(...): n is not in it. It has: N int. {CHANGE}"),
    ],
)
def test_a_schema_that_the_columns_do_not_hold_is_refused_with_what_to_declare(schema: str, said: str) -> None:
    found = explain_misfit(schema, NUMBERS, None)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_without_fastavro_a_check_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r"^Format avro needs fastavro\. Type: pip install fastavro$"):
        parse_reader(files("/land", format="avro", schema="n int"))


# --- each guard, and the damage without it


@pytest.mark.parametrize("guarded", [True, False])
def test_the_marker_shows_a_file_that_is_half_overwritten(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first blocks of one file and the last ones of another."""
    one, other = WHOLE, write_numbers(1000)
    middle = find_ends(one)[2]
    mixed = one[:middle] + other[middle:]
    if guarded:
        assert explain(mixed).startswith("is damaged: no sync marker follows the block at byte")
        return
    real = avro_container.read_header

    class AnyMarker(bytes):
        def __ne__(self, other: object) -> bool:
            return False

    monkeypatch.setattr(
        avro_container,
        "read_header",
        lambda source: (header := real(source)) and avro_container.Header(header.schema, header.codec, AnyMarker()),
    )
    assert {row["n"] >= 0x2000 + 1000 for row in read(mixed)} == {True, False}


@pytest.mark.parametrize("guarded", [True, False])
def test_the_size_shows_that_a_task_sees_an_older_file(guarded: bool) -> None:
    """Through the cache of a network disk: it ends behind a sync marker, and is a whole file there."""
    whole = WHOLE
    seen = whole[: find_ends(whole)[2]]
    if guarded:
        with pytest.raises(
            OSError, match=f"Input/output error: a file of {len(whole)} bytes has only {len(seen)} bytes"
        ):
            read(seen, size=len(whole))
        return
    assert len(read(seen)) < COUNT


@pytest.mark.parametrize("guarded", [True, False])
def test_bytes_behind_the_records_of_a_block_are_records_that_its_count_leaves_out(
    guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = WHOLE[:BEGIN] + b"\x06" + WHOLE[BEGIN + 1 :]
    if guarded:
        assert "21 bytes follow the last one of 3 records" in explain(fewer)
        return
    real = Decoder.read_all

    def read_all(self: Decoder, data: bytes, count: int) -> Any:
        return real(self, data[: 3 * count], count)

    monkeypatch.setattr(Decoder, "read_all", read_all)
    assert len(read(fewer)) == COUNT - 7
