"""The grammar of names: what people see is what every program writes, and it reads back one way."""

import shlex
import unicodedata
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import ids
from rota.errors import ConfigError

NAMES = st.text(min_size=1, max_size=30).filter(lambda t: not any(0xD800 <= ord(c) <= 0xDFFF for c in t))
BYTES = st.binary(min_size=1, max_size=20).map(lambda b: b.decode("utf-8", "surrogateescape"))  # of any file system
SHOWN = {
    "AA": "AA",
    "shop=1": "shop=1",
    "shop=Café Zürich": "shop=Café Zürich",
    "3": "3",
    "日本": "日本",
    "Ωλ, дом": "Ωλ%2C дом",
    "a:b@c=d": "a:b@c=d",
    "a_3d": "a_3d",
    "a/b": "a%2Fb",
    "100%": "100%25",
    " a  b ": "%20a %20b%20",
    "a\tb\n": "a%09b%0A",
    "\x1b[31m": "%1B%5B31m",
    "a...b": "a%2E%2E%2Eb",
    "a..b": "a..b",
    "[x]|y": "%5Bx%5D%7Cy",
    "😀": "%F0%9F%98%80",
    "a\u202eb": "a%E2%80%AEb",
    "a\u00a0b": "a%C2%A0b",
    "a\u00adb": "a%C2%ADb",
    "\ufffd": "%EF%BF%BD",
    "bad\udce9": "bad%E9",
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_key_is_what_people_see_and_escapes_only_what_is_no_printable_text(name: str) -> None:
    assert ids.escape(name) == SHOWN[name]
    assert ids.unescape(SHOWN[name]) == name


@given(NAMES | BYTES)
def test_a_key_leads_back_to_its_name(name: str) -> None:
    key = ids.escape(name)
    assert ids.unescape(key) == name
    assert ids.is_key(key)
    assert key.isprintable()
    assert key == key.strip()
    assert not set("/,|[]\0") & set(key)
    assert "..." not in key
    assert not any(0xD800 <= ord(c) <= 0xF8FF or ord(c) >= 0xFFF0 for c in key), "ZooKeeper refuses these"


@given(st.lists(NAMES | BYTES, min_size=2, max_size=6, unique=True))
def test_no_two_names_share_a_key(names: list[str]) -> None:
    assert len({ids.escape(name) for name in names}) == len(names)


@given(st.text(alphabet="aé%2FE0./ ,\n", max_size=12))
def test_a_text_is_a_key_if_and_only_if_some_name_is_written_so(text: str) -> None:
    if ids.is_key(text):
        assert ids.escape(ids.unescape(text)) == text
    else:
        with pytest.raises(ConfigError):
            ids.unescape(text)


def test_two_ways_to_write_a_letter_stay_two_partitions() -> None:
    composed, decomposed = (unicodedata.normalize(form, "Café") for form in ("NFC", "NFD"))
    assert ids.escape(composed) != ids.escape(decomposed)
    assert all(ids.is_partition(f"p:{key}") for key in (composed, decomposed))


@pytest.mark.parametrize(
    ("one", "other"), list(combinations(("flights", "flights-eu", "flights.eu", "flights_eu", "f"), 2))
)
def test_an_id_splits_one_way(one: str, other: str) -> None:
    """Today's `-` did not: `flights-eu-AA` was of `flights` too."""
    for key in ("AA", "eu", "eu:AA", f"{other}:AA", "-"):
        for pipeline in (one, other):
            partition = ids.partition_id(pipeline, key)
            assert (ids.pipeline_of(partition), ids.key_of(partition)) == (pipeline, key)
            assert ids.is_partition(partition)


def test_the_length_of_an_id_counts_in_bytes() -> None:
    assert ids.is_partition("p:" + "x" * (ids.MAX_PARTITION - 2))
    assert not ids.is_partition("p:" + "x" * (ids.MAX_PARTITION - 1))
    assert ids.is_partition("p:" + "ü" * (ids.MAX_PARTITION // 2 - 1))
    assert not ids.is_partition("p:" + "ü" * (ids.MAX_PARTITION // 2))


@pytest.mark.parametrize(
    "text",
    ["", ":", "p", "p:", ":a", "-p:a", "p q:a", "é:a", "p...q:a", "p:a\n", "p: a", "p:a ", "p:%41", "p:a/b", "p:a%2fb"],
)
def test_what_is_no_partition_id_is_refused_in_one_line(text: str) -> None:
    assert not ids.is_partition(text)
    with pytest.raises(ConfigError, match="Bad partition id"):
        ids.checked_partition(text)


@pytest.mark.parametrize("value", [None, 1, b"p:a", ["p:a"]])
def test_a_partition_id_is_text(value: Any) -> None:
    with pytest.raises(ConfigError, match="Bad partition id"):
        ids.checked_partition(value)


@given(NAMES | st.sampled_from(["$(touch owned)", "a'b", "`x`", "a;b", "--all", "Café Zürich"]))
def test_an_id_is_one_word_of_the_shell_in_a_next_step(name: str) -> None:
    partition = ids.partition_id("p", ids.escape(name))
    assert shlex.split(f"rota retry {ids.quote(partition)}") == ["rota", "retry", partition]


def test_the_name_of_a_runs_node_reads_back() -> None:
    incarnation = ids.incarnation_of("w1", 1 << 56)
    assert incarnation == "w1@0100000000000000"
    node = ids.run_node(incarnation, "5f0e4b7a", -1)
    assert node == "w1@0100000000000000@5f0e4b7a@ffffffffffffffff"
    assert ids.is_run(node)
    assert not ids.is_run(incarnation)
    assert ids.parse_run(node) == (incarnation, "5f0e4b7a", -1)
    assert ids.worker_of(incarnation) == "w1"


def test_the_names_of_dagster() -> None:
    assert ids.asset_key("flights", "records") == ("flights", "records")
    assert ids.partition_set("flights") == "flights/partitions"
    assert ids.dagster_name("eu-west", "membership") == "eu_2dwest__membership"


@given(
    st.lists(st.from_regex(r"[a-z0-9](?:[a-z0-9.-]|_(?![_.-])){0,8}[a-z0-9]", fullmatch=True), min_size=1, max_size=3)
)
def test_a_name_of_dagster_gives_its_parts_back(parts: list[str]) -> None:
    assert list(ids.split_dagster_name(ids.dagster_name(*parts))) == parts
