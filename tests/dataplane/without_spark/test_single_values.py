"""A decision from bytes, without a parse, is right for every reader; in doubt there is none."""

import csv
import gzip
import json
import lzma
import random
import re
from pathlib import Path

import pytest

from rota.dataplane.files import texts
from rota.dataplane.formats.quoting import Dialect
from tests.dataplane.json_lines import JOINED, SINGLE

DOUBTFUL = {  # lines of which Spark's parser finds a single value
    "{'word': '}{'}", '{"n": 1},', *(line for line in SINGLE if line[0] == "["),
}  # fmt: skip
PIECES = (
    *'{}[]"\\,:\n\r \t1n\'\xe9\0', '\\"', '"n"', '{"n": 1}', '"}{"', "[]", "{}", "null", "//", "\ufeff", '"a":', "}{", "},{",
)  # fmt: skip
ENDS = re.compile("\r\n|\n|\r")
DECODER = json.JSONDecoder(strict=False)


def are_single(paths: list[Path], options: dict[str, str]) -> bool:
    return texts.count_most(paths, "json", options) is not None


def is_joined(line: str) -> bool:
    """Return whether Python's parser finds an object or a list, and more after it."""
    text = line.lstrip(" \t\ufeff")
    try:
        value, end = DECODER.raw_decode(text)
    except ValueError:
        return False
    return isinstance(value, dict | list) and bool(text[end:].strip())


def test_what_holds_two_values_is_never_single() -> None:
    for line in JOINED:
        for text in (line, f'{{"n": 0}}\n{line}\r\n', f'[{{"n": 0}},\r{{"n": 1}}, {line}]'):
            assert not texts.is_clean(text.encode()), text


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_is_single_is_mostly_known_to_be(end: str) -> None:
    known = {line for line in SINGLE if texts.is_clean(f"{line}{end}".encode())}
    assert known == set(SINGLE) - DOUBTFUL
    assert texts.is_clean(end.join((*known, "", " ", *known)).encode())


def test_random_text_that_is_said_to_be_single_is() -> None:
    draw, said = random.Random(10), 0
    for _ in range(1_500):
        text = "".join(draw.choices(PIECES, k=draw.randint(0, 9)))
        text = f"{draw.choice(('', '[', SINGLE[2]))}{text}{draw.choice(('', ']', SINGLE[2]))}"
        if texts.is_clean(text.encode()):
            said += 1
            assert not any(map(is_joined, ENDS.split(text))), repr(text)
    assert said > 150


def test_random_lines_that_are_counted_by_their_ends_are_single_and_not_blank() -> None:
    draw, said = random.Random(11), 0
    for _ in range(3_000):
        lines = draw.choices(
            ("{}", '{"n": 1}', '{"n": {}}', "}", "", " ", "[]", "[}", "{}\r", "\r{}", "{} "), (9, 9, *[1] * 9), k=3
        )
        block = "\n".join((*lines, draw.choice(("", "", "{}")))).encode()
        if (ended := texts.count_ended(block)) is not None:
            said += 1
            assert texts.is_clean(block), block
            assert ended == 3 == sum(1 for line in block.split(b"\n") if line.strip()), block
    assert said > 800
    assert texts.count_ended(b"") is None


def land(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


PLAIN = b'{"n": 1}\n{"n": 2, "more": [{"x": 1}, {"x": 2}]}\n'


def test_a_file_is_read_in_pieces_that_end_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for read in range(1, 60, 7):
        monkeypatch.setattr(texts, "READ", read)
        assert are_single([land(tmp_path, "0.json", PLAIN)], {})
        assert are_single([land(tmp_path, "0.json", PLAIN[:-1])], {})
        for at in (0, 9, len(PLAIN)):
            joined = PLAIN[:at] + b'{"n": 1}{"n": 2}' + PLAIN[at:]
            assert not are_single([land(tmp_path, "0.json", joined)], {})


def test_what_cannot_be_decided_is_in_doubt(tmp_path: Path) -> None:
    """Compressed in a way that only Spark reads, another end of lines, no UTF-8, half a file, no file."""
    assert are_single([land(tmp_path, "0.json.gz", gzip.compress(PLAIN))], {"allowComments": "true"})
    assert are_single([land(tmp_path, "0.2026-11-22", PLAIN)], {})
    assert are_single([land(tmp_path, "0", b"")], {})
    path = land(tmp_path, "0.json", PLAIN)
    assert are_single([path], {})
    for option in ("lineSep", "multiLine", "encoding", "charset"):
        assert not are_single([path, path], {option: "x"})
    for name, data in {
        "0.json.bz2": PLAIN,
        "0.deflate": PLAIN,
        "1.json.gz": gzip.compress(PLAIN * 99)[:-9],
        "2.json.gz": PLAIN,
        "1.json": PLAIN.decode().encode("utf-16"),
        "2.json": b'{"n": 1, "word": "' + b"x" * (texts.LONGEST + texts.READ) + b'"}',
        "3.json": b"[" * 20 + b"{}" + b"]" * 20,
        "4.json": b'{"n": "\xfc"}',
        "5.json": b'{"n": 1}\0',
    }.items():
        assert not are_single([land(tmp_path, name, data)], {}), name
    assert not are_single([tmp_path / "gone.json"], {})
    assert are_single([path, path], {})


# --- how many records -----------------------------------------------------------------------------------------------


def count(folder: Path, text: str, format: str = "csv", options: dict[str, str] | None = None) -> int | None:
    return texts.count_most([land(folder, f"0.{format}", text.encode())], format, options or {})


def test_records_are_counted(tmp_path: Path) -> None:
    assert [count(tmp_path, text) for text in ("", "1,a", "1,a\n", "1,a\r\n\r\n \t\n2,b", "\n\n1,a\n\n")] == [
        0,
        1,
        1,
        2,
        1,
    ]
    for text, most in (("", 0), ("n,word", 0), ("n,word\n1,a\n", 1), ("\nn,word\n\n1,a", 1), (" \n", 0)):
        assert count(tmp_path, text, options={"Header": "TRUE"}) == most
    for text, most in (("", 0), ("{}\n \n{}\n", 2), (PLAIN.decode(), 2), ('{"n": [{}, {}]}\r\n\r\nnull\r\n', 2)):
        assert count(tmp_path, text, "json") == most
    both = [land(tmp_path, name, b"1\n2\n") for name in ("0.csv", "1.csv")]
    assert texts.count_most(both, "csv", {"header": "true"}) == 2
    assert texts.count_most([], "csv", {}) == 0


def test_pieces_are_counted_as_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n1,a\r\n\n \n2,b\n\r\n3,c"
    for read in range(1, 20):
        monkeypatch.setattr(texts, "READ", read)
        assert count(tmp_path, text) == 3


def test_what_may_hold_more_records_than_lines_is_not_counted(tmp_path: Path) -> None:
    for text in ("1,a\r2,b\n", "1,a\r", "\r1,a\n"):
        assert count(tmp_path, text) is None
    for text in ('[{"n": 1}, {"n": 2}]', '[{"n": 1}]', '{"n": 1}\r{"n": 2}\n', *JOINED):
        assert count(tmp_path, text, "json") is None, text
    for option in ("lineSep", "multiLine", "encoding", "charset", "Comment"):
        assert count(tmp_path, "1,a\n", options={option: "x"}) is None
    assert count(tmp_path, "1,a\n", options={"Encoding": "UTF-8", "multiLine": "false"}) == 1
    assert texts.count_most([tmp_path / "gone.csv"], "csv", {}) is None


# --- quotes of CSV ---------------------------------------------------------------------------------------------------

DIALECTS = (
    Dialect(), Dialect(sep="\t"), Dialect(sep="||"), Dialect(escape="\\"), Dialect(quote="'", escape="'"),
    Dialect(trims=True),
)  # fmt: skip


def test_quotes_that_are_said_to_be_clean_are_and_both_patterns_agree() -> None:
    """Of random lines; beside that, what Python's csv module reads with `strict` is well-formed, and nothing else."""
    draw, clean, good = random.Random(12), 0, 0
    for dialect in DIALECTS:
        pattern = re.compile(dialect.pattern)
        pieces = (*"\"'a\n\\ ", dialect.sep, '""', '"a"', "\r\n")
        for _ in range(4_000):
            text = "".join(draw.choices(pieces, k=draw.randint(0, 12)))
            found = {line: bool(pattern.match(line)) for line in ENDS.split(text)}
            assert all((dialect.find_ill(line) < 0) == one for line, one in found.items()), text
            if dialect.is_clean(text.encode()):
                clean += 1
                assert all(found.values()), (dialect, text)
            if dialect == Dialect():
                good += sum(found.values())
                assert found == {line: is_read_strictly(line) for line in found}, text
    assert clean > 5_000
    assert good > 5_000


def is_read_strictly(line: str) -> bool:
    try:
        return len(list(csv.reader([line], strict=True))) == 1
    except csv.Error:
        return False


def test_bytes_and_quotes_and_blank_fields_leave_a_file_of_csv_in_doubt(tmp_path: Path) -> None:
    assert count(tmp_path, '1,"a"\n2,"a ""b"""\r\n3,5" pipe\n'.replace('5"', "5")) == 3
    for text in ('1,"a\n', '1,"a"b\n', '1,"a\n2,b"\n', '1,5" pipe\n'):
        assert count(tmp_path, text) is None, text
    assert count(tmp_path, "1\ta\n\tb\n\n", options={"sep": "\t"}) == 2
    assert count(tmp_path, "1\ta\n\t\n", options={"sep": "\t"}) is None
    assert texts.count_most([land(tmp_path, "0.csv", b"1,Z\xfcrich\n")], "csv", {}) is None


def test_an_archive_is_named(tmp_path: Path) -> None:
    """Its bytes would be read as text."""
    packed = {
        ".xz": lzma.compress(b"abc"),
        ".zip": b"PK\3\4abc",
        ".csv": gzip.compress(b"abc"),
        ".csv.gz": gzip.compress(gzip.compress(b"")),
    }
    for suffix, data in packed.items():
        assert "archive" in texts.explain_archive(land(tmp_path, f"0{suffix}", data)), suffix
    for suffix, data in {".gz": gzip.compress(b"PK,1"), ".csv": b"PK,1", ".bz2": b"BZh", ".csv.gz": b"no gzip"}.items():
        assert texts.explain_archive(land(tmp_path, f"1{suffix}", data)) == ""


def test_a_file_whose_records_span_lines_names_the_line(tmp_path: Path) -> None:
    """An unclosed quote would take what follows it into its field."""
    for text, line in (('1,"a\nb"\n2,"c\r\nd"\r\n3,e', 0), ('1,a\n2,"b\n3,c\n', 2), ('1,"a\nb"\n\n4,"c"d\n', 4)):
        why = texts.explain_ill(land(tmp_path, "0.csv", text.encode()), "csv", {"multiLine": "true"})
        assert (f"begins in line {line}:" in why) if line else not why, (text, why)
    assert "not utf-8" in texts.explain_ill(land(tmp_path, "0.csv", b"1,Z\xfcrich"), "csv", {})
    assert texts.explain_ill(land(tmp_path, "0.csv", b"1,Z\xfcrich"), "csv", {"encoding": "windows-1252"}) == ""
    assert "not utf-8" in texts.explain_ill(land(tmp_path, "0.json", b'{"s": {"t": "\xed\xa0\x80"}}'), "json", {})
