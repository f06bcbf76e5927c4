"""No file gets a value that makes its column unreadable, at any depth, from any source."""

import io
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.dataplane.spark import on_executors
from tests.dataplane.conftest import log
from tests.dataplane.world import World

LATIN = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0"), pa.py_buffer(b"\xe9ok"))
GOOD = pa.array(["é", "ok"])
CUT = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer("é".encode()))
ENDS = pa.array([0, 2], pa.int32())


def nest(texts: pa.Array) -> Iterator[pa.Array]:
    """Return the texts in each shape, and in nested shapes."""
    numbers = pa.array([1, 2])
    shapes: list[Callable[[pa.Array], pa.Array]] = [
        lambda one: one,
        lambda one: pa.StructArray.from_arrays([one], ["x"]),
        lambda one: pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), one),
        lambda one: pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), one, numbers),
        lambda one: pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), numbers, one),
    ]
    for outer in shapes:
        for inner in shapes:
            yield outer(inner(texts))


def explain(array: pa.Array) -> str:
    try:
        on_executors.check_readable(pa.RecordBatch.from_arrays([array], ["c"]))
    except on_executors.UnreadableError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("bad", [LATIN, CUT], ids=["latin-1", "cut inside of a character"])
def test_a_text_that_is_no_utf8_is_refused_at_any_depth(bad: pa.Array) -> None:
    assert all("column c has a text that is not UTF-8" in explain(one) for one in nest(bad))
    assert not any(explain(one) for one in nest(GOOD))
    assert not explain(LATIN.slice(1))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (pa.array(["a", "a"]), "one key twice"),
        (pa.array([1, 1]), "one key twice"),
        (pa.array([b"\xff", b"\xff"]), "one key twice"),
        (pa.array([{"x": 1}, {"x": 1}]), "one key twice"),
        (pa.array(["a", "b"]), ""),
        (pa.array([{"x": 1}, {"x": 2}]), ""),
    ],
)
def test_a_map_with_one_key_twice_is_refused_at_any_depth(keys: pa.Array, why: str) -> None:
    one = pa.MapArray.from_arrays(ENDS, keys, pa.array([1, 2]))
    apart = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), keys, pa.array([1, 2]))
    assert all(
        why in explain(shape) and bool(explain(shape)) == bool(why) for shape in nest(pa.concat_arrays([one, one]))
    )
    assert not any(explain(shape) for shape in nest(apart))
    assert not explain(pa.concat_arrays([one, apart]).slice(1))


@pytest.mark.parametrize("guarded", [True, False])
def test_a_file_with_such_a_text_stops_its_partition_alone(
    guarded: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("pipeline = Pipeline(source=source(format='parquet', schema='s string'), table=delta({table!r}))\n")
    if not guarded:
        monkeypatch.setattr(on_executors, "check_readable", lambda _: None)
    for key, texts in {"a": GOOD, "b": LATIN}.items():
        sink = io.BytesIO()
        pq.write_table(pa.table({"s": texts}), sink)
        world.put(f"{key}/0.parquet", sink.getvalue())
    world.give("a", "b")
    world.until_idle("a", "b")
    said = {partition: one.record.reason for partition, one in world.tree.parked().items()}
    if guarded:
        assert [row["s"] for row in log(world.table / "main").rows()] == ["é", "ok"]
        assert list(said) == ["p:b"]
        assert "column s has a text that is not UTF-8" in said["p:b"]
        assert "b/0.parquet" in said["p:b"]
    else:
        assert not said
        with pytest.raises(UnicodeDecodeError):
            log(world.table / "main").rows()


def test_a_file_that_spark_cannot_read_has_its_cause_in_the_reason(world: World) -> None:
    world.write("pipeline = Pipeline(source=source(format='parquet', schema='n int'), table=delta({table!r}))\n")
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array(range(9), pa.int32())}), sink, compression="none", use_dictionary=False)
    data = sink.getvalue()
    world.put("a/0.parquet", data[:4] + b"\xff" * 12 + data[16:])
    world.give("a")
    world.until_idle("a")
    ((_, one),) = world.tree.parked().items()
    assert "FAILED_READ_FILE" not in one.record.reason
    assert "a/0.parquet" in one.record.reason
