"""For any bytes that land or are published, one line states why a record is bad, and nothing is raised."""

import gzip
import random
from pathlib import Path

import pytest

from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.formats import lines, values
from rota.dataplane.ports import ASSIGN
from tests.dataplane.json_lines import JOINED, SINGLE
from tests.dataplane.world import World

DEEP = (
    "[" * 1500,
    '{"a":' * 100_000,
    "[" * 5000 + "]" * 5000,
    "[" * 1200 + "[1],[2]" + "]" * 1200,
    "[1]," * 9 + "[" * 9999,
)
HUGE = ("9" * 5000, '{"n": ' + "7" * 9000 + ', "more": [{}, {}]}', "-" * 70_000, "1e999999999")
PIECES = (
    *'{}[]"\\,:\'\n\r\t 1eE.+-n\0', '"n"', '{"n": 1}', "NaN", "Infinity", "null", "\\u0000", "\\ud800", "\ufeff", "//", "/*",
    "\xff\xfe", "[" * 400, "}" * 400, "5" * 4400, '"' * 50, "\x1e", "\u2028", "'" * 33,
)  # fmt: skip


def draw_bodies(seed: int, count: int) -> list[bytes]:
    draw, found = random.Random(seed), [text.encode() for text in (*DEEP, *HUGE, *JOINED, *SINGLE, "", " ")]
    for _ in range(count):
        text = "".join(draw.choices(PIECES, k=draw.randint(0, 12)))
        body = text.encode("latin-1" if draw.random() < 0.3 else "utf-8", "ignore")
        found.append(draw.randbytes(draw.randint(0, 40)) if draw.random() < 0.2 else body)
    return found


@pytest.mark.parametrize("format", ["json", "csv"])
def test_a_message_of_any_bytes_is_staged_and_explained(format: str, tmp_path: Path) -> None:
    bodies = draw_bodies(3, 4000)
    values.stage(tmp_path, "p:0", enumerate(bodies))
    for body in bodies:
        why = values.explain_bad(format, values.decode(body), [("n", "m"), ("word",)])
        assert why, body
        assert len(why) < 200, why
    assert values.explain_bad("json", "[" * 1500, []) == "no JSON: nested too deep"


@pytest.mark.parametrize("format", ["json", "csv"])
def test_a_line_of_any_bytes_is_explained_and_found(format: str, tmp_path: Path) -> None:
    world = World(tmp_path, text=f"pipeline = Pipeline(source=source(format={format!r}), table=delta({{table!r}}))\n")
    source = world.ports.source
    assert isinstance(source, FilesSource)
    bodies = draw_bodies(4, 2000)
    packed, draw = gzip.compress(b"\n".join(bodies)), random.Random(5)
    files = [b"\n".join(bodies), packed, packed[:-9], packed[: len(packed) // 2], b"\x1f\x8b" + draw.randbytes(90)]
    for number, data in enumerate(files):
        for suffix in (".json", ".json.gz", ".json.bz2"):
            path = tmp_path / "land" / "a" / f"{number}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    for offset in range(source.observe(("p:a",), ASSIGN).ends["p:a"]):
        for raw in source.list_raw("p:a", offset):
            assert lines.explain_bad(format, raw, [("n", "m"), ("word",)])
