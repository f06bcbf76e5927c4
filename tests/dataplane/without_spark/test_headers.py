"""What the error about a CSV header names, for each way in which header and schema differ."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane.files.disk import DiskLanding
from rota.dataplane.files.headers import explain_misfit
from rota.dataplane.formats.quoting import Dialect
from rota.pipeline import Files

SPARKS = (
    "SparkIllegalArgumentException: Number of column in CSV header is not equal to number of fields in the schema: "
    "Header length: {}, schema size: 2 CSV file: {}"
)


@pytest.mark.parametrize(
    ("header", "options", "said"),
    [
        ("n,word,Filiale", {}, "has the undeclared column 'Filiale'. Declare"),
        ('"n";"word";"a;b";"c"', {"sep": ";"}, "has the undeclared column 'a;b', 'c'. Declare"),
        ("N", {}, "lacks the declared column 'word'. Declare"),
        ("n,Wort,more", {}, "has the undeclared column 'Wort', 'more' and lacks the declared column 'word'. Declare"),
        ("n,a,b,c,d,e,f", {}, "'a', 'b', 'c', 'd', 'e' and others and lacks the declared column 'word'. Declare"),
    ],
)
def test_the_columns_that_differ_are_named(tmp_path: Path, header: str, options: dict[str, str], said: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.csv").write_text(f"{header}\n1,x\n")
    declared = Files(str(tmp_path), format="csv", schema="n int, word string", options=options)
    landing = DiskLanding(tmp_path)
    for path in ("a/1.csv", f"file://{tmp_path}/a/1.csv"):
        misfit = explain_misfit(SPARKS.format(3, path), landing, declared)
        assert misfit.startswith("SparkIllegalArgumentException: the CSV header of a/1.csv ")
        assert said in misfit


def test_what_cannot_be_read_stays_as_spark_writes_it(tmp_path: Path) -> None:
    declared = Files(str(tmp_path), format="csv", schema="n int, word string")
    landing = DiskLanding(tmp_path)
    for text in (SPARKS.format(3, "a/gone.csv"), "ValueError: another error", ""):
        assert explain_misfit(text, landing, declared) == text


@given(st.lists(st.text('ab",é \\'), min_size=1, max_size=5))
def test_a_header_is_split_as_the_csv_module_writes_it(names: list[str]) -> None:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    assert Dialect().split(line.getvalue()) == names


@pytest.mark.parametrize(
    ("line", "dialect", "names"),
    [
        ("a,b\\7", (",", '"', "\\"), ["a", "b\\7"]),  # Spark keeps an escape before any other character
        ('"a\\"b","c\\d","e\\\\",', (",", '"', "\\"), ['a"b', "c\\d", "e\\", ""]),
        ('a||b||"c||d"', ("||", '"', '"'), ["a", "b", "c||d"]),
        ('"a"b,c', (",", "", '"'), ['"a"b', "c"]),
        ("", (",", '"', '"'), [""]),
    ],
)
def test_a_header_is_split_in_each_dialect(line: str, dialect: tuple[str, str, str], names: list[str]) -> None:
    assert Dialect(*dialect).split(line) == names
