"""Bytes that hold one value of JSON a line for sure are known without Spark; in doubt they are not."""

import gzip
import json
import random
import re
from pathlib import Path

import pytest

from rota.dataplane.files import lines
from tests.dataplane.test_lines import JOINED, SINGLE

DOUBTFUL = {"{'word': '}{'}", '{"n": 1},'}  # of those that Spark's parser finds single
PIECES = (
    *'{}[]"\\,:\n\r \t1n\'\xe9\0', '\\"', '"n"', '{"n": 1}', '"}{"', "[]", "{}", "null", "//", "\ufeff", '"a":', "}{", "},{",
)  # fmt: skip
ENDS = re.compile("\r\n|\n|\r")
DECODER = json.JSONDecoder(strict=False)


def is_joined(line: str) -> bool:
    """Whether Python's own parser finds an object or a list and more behind it."""
    text = line.lstrip(" \t\ufeff")
    try:
        value, end = DECODER.raw_decode(text)
    except ValueError:
        return False
    return isinstance(value, dict | list) and bool(text[end:].strip())


def test_what_holds_two_values_is_never_single() -> None:
    for line in JOINED:
        for text in (line, f'{{"n": 0}}\n{line}\r\n', f'[{{"n": 0}},\r{{"n": 1}}, {line}]'):
            assert not lines.is_clean(text.encode()), text


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_is_single_is_mostly_known_to_be(end: str) -> None:
    known = {line for line in SINGLE if lines.is_clean(f"{line}{end}".encode())}
    assert known == set(SINGLE) - DOUBTFUL
    assert lines.is_clean(end.join((*known, "", " ", *known)).encode())


def test_random_text_that_is_said_to_be_single_is() -> None:
    draw, said = random.Random(10), 0
    for _ in range(1_500):
        text = "".join(draw.choices(PIECES, k=draw.randint(0, 9)))
        text = f"{draw.choice(('', '[', SINGLE[2]))}{text}{draw.choice(('', ']', SINGLE[2]))}"
        if lines.is_clean(text.encode()):
            said += 1
            assert not any(map(is_joined, ENDS.split(text))), repr(text)
    assert said > 150


def land(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


PLAIN = b'{"n": 1}\n{"n": 2, "more": [{"x": 1}, {"x": 2}]}\n'


def test_a_file_is_read_in_pieces_that_end_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for read in range(1, 60, 7):
        monkeypatch.setattr(lines, "READ", read)
        assert lines.is_single(land(tmp_path, "0.json", PLAIN), {})
        assert lines.is_single(land(tmp_path, "0.json", PLAIN[:-1]), {})
        for at in (0, 9, len(PLAIN)):
            joined = PLAIN[:at] + b'{"n": 1}{"n": 2}' + PLAIN[at:]
            assert not lines.is_single(land(tmp_path, "0.json", joined), {})


def test_what_cannot_be_told_is_in_doubt(tmp_path: Path) -> None:
    """Packed in a way that only Spark knows, another end of lines, no UTF-8, half a file, none."""
    assert lines.is_single(land(tmp_path, "0.json.gz", gzip.compress(PLAIN)), {"allowComments": "true"})
    assert lines.is_single(land(tmp_path, "0.2026-11-22", PLAIN), {})
    assert lines.is_single(land(tmp_path, "0", b""), {})
    path = land(tmp_path, "0.json", PLAIN)
    assert lines.is_single(path, {})
    for option in ("lineSep", "multiLine", "encoding", "charset"):
        assert not lines.is_single(path, {option: "x"})
    for name, data in {
        "0.json.bz2": PLAIN,
        "0.deflate": PLAIN,
        "1.json.gz": gzip.compress(PLAIN * 99)[:-9],
        "2.json.gz": PLAIN,
        "1.json": PLAIN.decode().encode("utf-16"),
        "2.json": b'{"n": 1, "word": "' + b"x" * (lines.LONGEST + lines.READ) + b'"}',
        "3.json": b"[" * 20 + b"{}" + b"]" * 20,
    }.items():
        assert not lines.is_single(land(tmp_path, name, data), {}), name
    assert not lines.is_single(tmp_path / "gone.json", {})
    assert not lines.are_single([path, tmp_path / "gone.json", path], {})
    assert lines.are_single([path, path], {})
