"""Maps whose key is marked optional, as Athena, Presto and Hive write them: a null key stops the partition."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.dataplane.files import optional_keys, parquet
from tests.dataplane.conftest import log
from tests.dataplane.parquet_bytes import MAPS, Leaf, write
from tests.dataplane.world import World

TEXTS, NUMBERS = [b"a", b"b", b"c"], [1, 2, 3]


def text(*values: bytes | None) -> Leaf:
    plain = [value and len(value).to_bytes(4, "little") + value for value in values]
    return Leaf("BYTE_ARRAY", plain, "UTF8", optional=True)


def number(*values: int | None) -> Leaf:
    return Leaf("INT32", [None if n is None else n.to_bytes(4, "little") for n in values], "INT_32", optional=True)


def make_file(t: Leaf, n: Leaf, flat: Leaf) -> bytes:
    return write({"t": ("map", t), "n": ("map", n), "f": ("flat", flat)}, False)


GOOD = make_file(text(*TEXTS), number(*NUMBERS), number(*NUMBERS))
NULL_TEXT = make_file(text(b"a", None, b"c"), number(*NUMBERS), number(*NUMBERS))
NULL_NUMBER = make_file(text(*TEXTS), number(1, None, 3), number(*NUMBERS))


def map_of(kind: object, value: object = None) -> object:
    return {"type": "map", "keyType": kind, "valueType": value or kind, "valueContainsNull": True}


def explain(file: Path, **kinds: object) -> str:
    fields = [{"name": name, "type": kind, "metadata": {}} for name, kind in kinds.items()]
    return parquet.explain_misfit(file, {"type": "struct", "fields": fields}, False)


@pytest.mark.parametrize(
    ("data", "kinds", "why"),
    [
        (GOOD, {"t": map_of("string"), "n": map_of("integer"), "f": "integer"}, ""),
        (GOOD, {"n": map_of("long")}, ""),
        (GOOD, {"t": map_of("integer")}, "has t.key as string, not integer, t.value as string, not integer"),
        (GOOD, {"f": "string"}, "has f as int32, not string"),
        (NULL_TEXT, {"t": map_of("string")}, "has a null key in t.key_value.key, and no map has one"),
        (NULL_NUMBER, {"n": map_of("integer")}, "has a null key in n.key_value.key"),
        (NULL_NUMBER, {"t": map_of("string"), "f": "integer"}, ""),
    ],
)
def test_a_declared_map_is_read_unless_a_key_is_null(
    data: bytes, kinds: dict[str, object], why: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(data)
    with pytest.raises(pa.ArrowInvalid, match=parquet.OPTIONAL_KEY):
        pq.read_metadata(file)
    assert explain(file, **kinds).startswith(why)
    assert bool(explain(file, **kinds)) == bool(why)


def test_a_null_key_is_found_in_a_list_of_maps(tmp_path: Path) -> None:
    file, declared = tmp_path / "a.parquet", {"type": "array", "elementType": map_of("string"), "containsNull": True}
    for leaf, why in ((text(*TEXTS), ""), (text(b"a", None, b"c"), "has a null key in m.list.element.key_value.key")):
        file.write_bytes(write({"m": (MAPS, leaf), "t": ("map", text(*TEXTS))}, False))
        assert explain(file, m=declared).partition(",")[0] == why


def test_a_file_with_a_null_key_stops_its_partition_alone(landed: World) -> None:
    landed.write(
        "pipeline = Pipeline(table=delta({table!r}), "
        "source=source(format='parquet', schema='t map<string,string>, n map<int,int>, f int'))\n"
    )
    files = {"good": GOOD, "text": NULL_TEXT, "number": NULL_NUMBER}
    for key, data in files.items():
        landed.put(f"{key}/0.parquet", data)
    landed.give(*files)
    landed.until_idle(*files)
    rows = [(row["_partition"], row["t"], row["n"], row["f"]) for row in log(landed.table / "main").rows()]
    values = zip(map(bytes.decode, TEXTS), NUMBERS, strict=True)
    assert rows == [("p:good", [(word, word)], [(n, n)], n) for word, n in values]
    found = {name: one.record.reason for name, one in landed.tree.parked().items()}
    assert found.keys() == {"p:text", "p:number"}
    assert found["p:text"].startswith("text/0.parquet has a null key in t.key_value.key")
    assert found["p:number"].startswith("number/0.parquet has a null key in n.key_value.key")


def test_the_ablation_parks_the_partition_without_a_word_on_the_key(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optional_keys, "find_null", lambda *_: "")
    world.write(
        "pipeline = Pipeline(table=delta({table!r}), source=source(format='parquet', schema='n map<int,int>'))\n"
    )
    world.put("a/0.parquet", NULL_NUMBER)
    world.give("a")
    world.until_idle("a")
    ((_, one),) = world.tree.parked().items()
    assert "key" not in one.record.reason
