"""Hostile input: each ends in one printable line, and nothing is read, written or lost.

Ids, paths, addresses, documents and the payloads of znodes; keys that lead elsewhere are in tests/dataplane/test_names.py.
"""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from struct import pack as struct_pack

import pytest
from click.testing import CliRunner

from rota.catalog import load
from rota.cli.document import answer_request, parse_request
from rota.coordination.group_state import GroupState
from rota.coordination.id_set import MAX_IDS, unpack
from rota.coordination.layout import Paths
from rota.coordination.records import Live, Own, Parked, Partitions, Record, Slots, decode
from rota.coordination.store import checked_path
from rota.errors import ConfigError, RotaError, Undecodable
from rota.ids import (
    checked_id,
    escape,
    incarnation_of,
    is_id,
    is_incarnation,
    is_key,
    parse_incarnation,
    pipeline_of,
    unescape,
)
from rota.pipeline import Pipeline, delta, files
from rota.settings import Settings, check_known, checked_endpoint, expand, split_hosts
from simulator.memory_store import MemoryServer

HUGE = "a" * 10_000_000
DEEP = "[" * 100_000 + "]" * 100_000
WORDS = {
    "empty": "",
    "blank": " ",
    "here": ".",
    "above": "..",
    "up": "../../etc/passwd",
    "root": "/etc/passwd",
    "windows": "..\\..\\x",
    "encoded": "%2e%2e%2f",
    "null": "a\0b",
    "only-null": "\0",
    "newline": "a\nb",
    "last-newline": "a\n",
    "return": "a\rb",
    "ansi": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "bell": "a\x07",
    "surrogate": "a\udce9",
    "pair": "\ud83d\ude00",
    "right-to-left": "a\u202egnp.exe",
    "isolate": "\u2066a\u2069",
    "zero-width": "a\u200bb",
    "line-separator": "a\u2028b",
    "nbsp": "a\u00a0b",
    "look-alike": "аdmin",
    "digits": "٣",
    "huge": HUGE,
    "129": "a" * 129,
    "hidden": ".hidden",
    "option": "--group",
    "quote": "a'b",
    "shell": "$(touch owned)",
    "markup": "[red]a[/red]",
    "session": "w1@0000000000000001",
    "tabs": "a\tb",
    "variable": "${HOME}",
    "braces": "{0.__class__}",
}
IDS: dict[str, Callable[[str], object]] = {
    "worker": lambda text: incarnation_of(text, 1),
    "group": Paths,
    "pipeline": lambda text: Paths("g").pipeline(text),
    "partition": lambda text: Paths("g").own(text),
    "run": lambda text: Paths("g").run(incarnation_of("w1", 1), text, 1),
    "run-of": lambda text: Paths("g").run(f"{text}@{1:016x}", "r1", 1),
    "incarnation": lambda text: parse_incarnation(f"{text}@1"),
}


def line(caught: "pytest.ExceptionInfo[RotaError]") -> str:
    """The error as it is shown: one line that a terminal only prints."""
    text = str(caught.value)
    assert text.isprintable()
    assert 0 < len(text) < 5_000
    assert text.encode()
    return text


@pytest.mark.parametrize("what", IDS)
@pytest.mark.parametrize("word", WORDS)
def test_an_id_that_means_harm(word: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        IDS[what](WORDS[word])
    assert ": " in line(caught)
    assert not is_id(WORDS[word])
    assert what != "incarnation" or not is_incarnation(f"{WORDS[word]}@1")


@pytest.mark.parametrize("word", WORDS)
def test_the_key_of_a_name_that_means_harm_is_printable_text_and_leads_nowhere_else(word: str) -> None:
    """A text that is a key stays as it is. Other texts are escaped, or no file can have that name."""
    paths, text = Paths("g"), WORDS[word]
    if is_key(text) and len(text) < 100:
        assert text.isprintable()
        assert not set("/\0") & set(text)
    else:
        with pytest.raises(ConfigError) as caught:
            paths.own(f"p:{text}")
        line(caught)
    if word in ("empty", "huge", "129", "pair"):
        return
    key = escape(text)
    assert key.isprintable()
    for path in (paths.own(f"p:{key}"), paths.parking(f"p:{key}"), paths.checkpoint(f"p:{key}")):
        assert checked_path(path) == path
        assert path.count("/") == 4
    assert (pipeline_of(f"p:{key}"), unescape(key)) == ("p", text)


@pytest.mark.parametrize(
    "value", [None, 1, True, b"w1", ["w1"], {"w1": 1}, float("nan"), object()], ids=lambda value: type(value).__name__
)
def test_an_id_that_is_no_text(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        checked_id("worker", value)
    line(caught)


@pytest.mark.parametrize("word", WORDS)
def test_a_znode_path_that_means_harm(word: str) -> None:
    text = WORDS[word]
    if word not in ("huge", "129", "hidden", "option", "session"):  # these are names of a node, if of no record
        with pytest.raises(ConfigError) as caught:
            checked_path(f"/rota/{text}")
        line(caught)
    with pytest.raises(ConfigError) as caught:
        checked_path(f"/rota/{text}/../x")
    line(caught)


HOSTS = ("129", "here", "above", "hidden", "option")  # no harm in these, if no host either
ENDPOINTS = [
    *(f"sc://{word}:1" for name, word in WORDS.items() if name not in HOSTS),
    *("http://h:1", "h:1", "sc:/h", "sc://h:99999999", "sc://h:x", "sc://u:password@h:1", "file:///etc/passwd", "sc://h:1/path"),
    *("sc://h/;token=longsecret", "sc://h:1/;use_ssl=true;token=longsecret", "sc://h/;authorization=Bearer%20longsecret"),
    *("sc://h/;x-key=longsecret", "sc://h/;user_id=a%0ab", "sc://h/;use_ssl=true;TOKEN=longsecret", "sc://h:1\n", "sc://h:1?x=1"),
    *("sc://h:1/;session_id=1", "sc://h:1#x", "sc://[::1", "sc://::1", "sc://h:1/;;", "sc://h:1;use_ssl=true", "SC://h:1"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ENDPOINTS)))
def test_an_endpoint_that_means_harm_is_neither_taken_nor_repeated(number: int) -> None:
    with pytest.raises(ConfigError) as caught:
        checked_endpoint(ENDPOINTS[number])
    said = line(caught)
    with pytest.raises(Undecodable) as undecodable:
        decode("/rota/g/live/w@1", Live, json.dumps({"endpoint": ENDPOINTS[number]}).encode())
    for text in (said, line(undecodable)):
        assert "longsecret" not in text
        assert "password@" not in text


@pytest.mark.parametrize(
    "text",
    [
        "h",
        "h:15002",
        "10.0.0.1:1",
        "[::1]:1",
        "h-1.x_y:1/",
        "h:443/;use_ssl=true;user_id=a.b",
        "h/;grpc_keepalive_time_ms=1",
    ],
)
def test_an_endpoint_that_means_no_harm(text: str) -> None:
    endpoint = f"sc://{text}"
    assert checked_endpoint(endpoint) == endpoint
    assert decode("/x", Live, json.dumps({"endpoint": endpoint}).encode()).endpoint == endpoint


BOMB = zlib.compress(b" " * 50_000_000, 1)
PAYLOADS: dict[str, bytes] = {
    "nothing": b"",
    "null": b"null",
    "nul": b"\0",
    "list": b"[]",
    "text": b'"x"',
    "number": b"1e999",
    "NaN": b"NaN",
    "cut": b'{"v": 1',
    "deep": DEEP.encode(),
    "deep-objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "latin-1": b'{"v": 1, "x": "\xe9"}',
    "surrogate": b'{"v": 1, "x": "\\ud800"}',
    "newer": b'{"v": 2}',
    "older": b'{"v": 0}',
    "unknown": b'{"v": 1, "\\u001b[31m\\nx": 1}',
    "long-name": b'{"v": 1, "' + b"k" * 600_000 + b'": 1}',
    "digits": b'{"v": ' + b"9" * 100_000 + b"}",
    "bomb": BOMB,
    "packed-bomb": b'{"v":1}\n' + struct_pack("!4sII", b"IDS1", MAX_IDS, zlib.crc32(BOMB)) + BOMB,
    "gzip": b"\x1f\x8b\x08\0",
    "pickle": b"\x80\x04K\x01.",
    "many-lines": b"\n" * 700_000,
    "bom": b"\xef\xbb\xbf{}x",
    "yaml": b"!!python/object/apply:os.system ['touch owned']",
}


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("model", [Live, Own, Parked, Partitions, Slots])
def test_a_payload_that_means_harm_is_quarantined_and_left_alone(model: type[Record], name: str) -> None:
    with pytest.raises(Undecodable) as caught:
        decode("/rota/g/x", model, PAYLOADS[name])
    assert "It is left alone" in line(caught)
    server = MemoryServer(clock=lambda: 1.0)
    tree = GroupState(server.connect(), "g")
    tree.found()
    paths = {Live: tree.paths.live("w@" + "0" * 16), Own: tree.paths.own("p:a"), Parked: tree.paths.parking("p:a")}
    path = {**paths, Partitions: tree.paths.pipeline("p"), Slots: tree.paths.assign("w")}[model]
    tree.store.create(path, PAYLOADS[name])
    assert tree.read_many([path], model) == {}
    assert path in tree.unreadable
    assert server.entries[path].node == tree.store.get(path)
    assert server.entries[path].node.version == 0, "it was not overwritten"


def test_a_twice_named_field_and_packed_ids_that_lie() -> None:
    ids = zlib.compress(b"\0\x01a\0\x01a")
    lies = [
        struct_pack("!4sII", b"IDS1", count, zlib.crc32(ids)) + ids
        for count in (0, 1, 2, MAX_IDS, MAX_IDS + 1, 2**32 - 1)
    ]
    lies += [struct_pack("!4sII", b"IDS1", 1, 0) + ids, b"IDS1", b"IDS2" + b"\0" * 20]
    for data in lies:
        with pytest.raises(ValueError):
            unpack(data)


DOCUMENTS: dict[str, str | bytes] = {
    "huge": '{"workers": [{"id": "' + HUGE + '"}]}',
    "nul": '{"workers": [{"id": "a\\u0000"}]}',
    "ansi": '{"workers": [{"id": "\\u001b[31m"}]}',
    "newline": '{"workers": [{"id": "a\\nb"}]}',
    "surrogate": '{"workers": [{"id": "\\ud800"}]}',
    "traversal": '{"partitions": [{"id": "../../x"}]}',
    "right-to-left": '{"owners": {"\\u202ea": "b"}}',
    "utf-16": '{"workers": [{"id": "é"}]}'.encode("utf-16"),
    "latin-1": b'{"workers": [{"id": "\xe9"}]}',
    "two": "{} {}",
    "pin": '{"partitions": [{"id": "a", "pin": "\\u0007"}]}',
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_that_means_harm(name: str) -> None:
    with pytest.raises(RotaError) as caught:
        answer_request(parse_request(DOCUMENTS[name]))
    line(caught)


@pytest.mark.parametrize("word", sorted(WORDS.keys() - {"digits"}))  # those are a number of seconds
def test_what_is_unknown_or_not_set_is_reported_in_one_line(word: str) -> None:
    text = WORDS[word]
    for call in (
        lambda: check_known("worker", text, ["w1"]),
        lambda: expand(f"{text}${{NOT_SET_HERE}}", {}),
        lambda: split_hosts(text),
        lambda: Settings.from_environment({"ROTA_SESSION_TIMEOUT": text}),
        lambda: Pipeline(files("x", format=text, schema="n int"), delta("t")),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError) as caught:
            call()
        line(caught)


@pytest.mark.parametrize("name", ["a b", "a\nb", "ä", "\x1b[31m", "a\udce9", "a\u202eb", "-x", "a;b"])
def test_a_pipeline_file_of_a_hostile_name_is_refused_and_the_others_are_served(tmp_path: Path, name: str) -> None:
    source = "from rota import Pipeline, delta, files\n"
    source += 'pipeline = Pipeline(files("x", format="json", schema="n int"), delta("{}"))'
    (tmp_path / "good.py").write_text(source.format("t"))
    (tmp_path / f"{name}.py").write_text(source.format("u"))
    catalog = load(tmp_path)
    assert set(catalog.pipelines) == {"good"}
    (why,) = catalog.refused.values()
    assert why.isprintable()


def test_a_command_prints_nothing_that_a_terminal_obeys() -> None:
    from rota.cli.plan import command

    for document in ("ansi", "newline", "right-to-left", "surrogate"):
        done = CliRunner().invoke(command, ["--lines"], input=DOCUMENTS[document])
        assert done.exit_code == 2
        assert json.loads(done.stdout)["error"].isprintable()
