"""What the page shows of a batch and of an epoch: rows as text, numbers that can be plotted, pictures that are files."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster_shared.serdes import serialize_value
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from rota.coordination.group_state import GroupState
from rota.coordination.membership import join
from rota.coordination.records import Live
from rota.dagster.assets import epoch_picture
from rota.dagster.assets.epoch_picture import draw_picture
from rota.dagster.assets.group import make_assignment
from rota.dagster.assets.metadata import describe_batch, describe_epoch, describe_maintenance, describe_replay
from rota.dagster.assets.names import Names
from rota.dagster.assets.pipeline import make_specs
from rota.dagster.assets.sample import CELL, MAX_LENGTH, WIDTH, render
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.errors import Unavailable
from rota.group.rebalance import rebalance
from rota.ledger.merging import Merged
from rota.pipeline import Group, Pipeline, delta, files
from rota.run import work
from rota.run.consume import CommittedBatch
from rota.run.maintain import Maintained
from rota.run.replay import ReplayedRange
from rota.run.samples import BatchSample
from simulator.memory_store import MemoryServer

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"
READER = MarkdownIt("commonmark", {"html": True}).enable("table")
HOSTILE = [
    "two\nlines\r\n", "a|b", "a\\|b", "\\", "`c`", "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "&#60;b>",
    "![x](http://x/y.png)", "[x](javascript:alert(1))", "**b** __i__ ~~s~~", "\x00\x00", "\u202eabc", "\ud800", "", "   ",
    "|-|", "# h", "$$x$$", "x" * 1_000_000, b"\xff\x00|", None, 1.5, datetime(2013, 1, 1, 5), {"a": [1, "|"]}, -(2**63),
]  # fmt: skip


def parse(text: str) -> list[list[str]]:
    """The cells of the one table that the text is, as a reader sees them; anything else in it is an error."""
    lines: list[list[str]] = []
    for token in READER.parse(text):
        assert token.type.partition("_")[0] in ("table", "thead", "tbody", "tr", "th", "td", "inline"), token
        if token.type == "tr_open":
            lines.append([])
        elif token.type == "inline":
            children: list[Token] = token.children or []
            assert {child.type for child in children} <= {"text", "text_special"}, token.content
            lines[-1].append("".join(child.content for child in children))
    return lines


def test_the_asset_itself_lists_the_columns_of_its_table(tmp_path: Path) -> None:
    """The tab Columns was empty wherever the newest materialization was a replay, or not the first of its run."""
    pipeline = replace(Pipeline(files("x", format="csv", schema="n int"), delta(str(tmp_path))), name="p")

    def list_columns() -> list[tuple[str, str]]:
        _, records, _ = make_specs(pipeline, Names())
        shown = records.metadata.get("dagster/column_schema")
        return [(one.name, one.type) for one in shown.columns] if shown else []

    assert list_columns() == [], "there is no table yet"
    (tmp_path / "main").mkdir()
    assert list_columns() == [], "nor there"
    write_deltalake(tmp_path / "main", pa.table({"_offset": [1], "word": ["a"]}))
    assert list_columns() == [("_offset", "long"), ("word", "string")]
    (tmp_path / "main" / "_delta_log" / f"{0:020}.json").write_text("?")
    assert list_columns() == [], "a table that cannot be read stops no code location"


def test_a_few_rows_are_a_table_with_the_columns_that_fit() -> None:
    rows = [{"_offset": n, "carrier": "UA", "late": None, "at": datetime(2013, 1, 1, 5)} for n in range(5)]
    head, *body = parse(render(rows))
    assert head == ["_offset", "carrier", "late", "at"]
    assert body == [[str(n), "UA", "null", "2013-01-01 05:00:00"] for n in range(5)]
    many = parse(render([{f"column_{i}": i for i in range(30)}]))
    assert many[0][-1] == "…"
    assert many[0][:2] == ["column_0", "column_1"]
    assert render([]) == ""


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:20])
def test_hostile_values_and_names_stay_in_their_cells(value: object) -> None:
    text = render([{str(value): "x", "n": value}] * 5)
    lines = parse(text)
    assert len(lines) == 6
    assert len(text) <= MAX_LENGTH
    assert {len(line) for line in lines} == {len(lines[0])}


@settings(max_examples=100)
@given(
    st.lists(
        st.dictionaries(st.text(max_size=40), st.one_of(st.text(), st.binary(), st.none()), max_size=8), max_size=5
    )
)
def test_whatever_the_rows_hold_the_table_is_bounded_and_text(rows: list[dict[str, object]]) -> None:
    text = render(rows)
    assert len(text) <= MAX_LENGTH
    if rows and rows[0]:
        lines = parse(text)
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        assert max(widths) <= CELL
        assert sum(widths) <= WIDTH or len(widths) <= 2
        assert len(lines) == len(rows) + 1


def test_unescaped_a_cell_would_break_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.dagster.assets.sample.SPECIAL", re.compile("(?!)"))
    assert len(parse(render([{"n": "a|b"}]))[0]) == 1
    with pytest.raises(AssertionError):
        parse(render([{"n": "<img src=x>"}]))


def test_a_secret_in_a_row_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S3_SECRET", "m4rked-s3-secret")
    assert parse(render([{"n": "at m4rked-s3-secret!"}]))[1] == ["at ***!"]


# --- an epoch ---


def publish(workers: int, partitions: int) -> Any:
    """An epoch of a group in memory."""
    server = MemoryServer()
    tree = GroupState(server.connect(), "g")
    tree.found()
    for n in range(workers):
        join(GroupState(server.connect(), "g"), f"w{n:04}", Live())
    tree.grow("p", tuple(f"k{n:05}" for n in range(partitions)))
    return rebalance(tree, "run")


def test_an_epoch_has_few_keys_and_begins_with_what_happened() -> None:
    done = publish(300, 5000)
    lags = {f"p:k{n:05}": n for n in range(5000)}
    sparks = {f"w{n:04}": "sc://u:s3cret@h:1" for n in range(300)}
    shown = describe_epoch(done, {"picture": dg.MetadataValue.md("![](/x)")}, lags, sparks)
    assert list(shown)[:2] == ["what happened", "picture"]
    assert len(shown) < 40, "however many workers and partitions there are"
    assert (shown["lag of p:k04999"], shown["lag, total"]) == (4999, sum(lags.values()))
    assert len([key for key in shown if key.startswith("lag of ")]) == 10
    assert len([key for key in shown if key.startswith("load of w")]) == 10
    assert shown["load, total"] == 5000.0
    size = len(serialize_value(dg.AssetMaterialization("a", metadata=shown)))
    assert size < 100_000
    assert "s3cret" not in serialize_value(dg.AssetMaterialization("a", metadata=shown))


def test_a_small_group_plots_every_worker_and_partition() -> None:
    shown = describe_epoch(publish(2, 3), {}, {"p:k00000": 0, "p:k00001": 7, "p:k00002": 0}, {})
    numbers = {key: value for key, value in shown.items() if key.startswith(("lag", "load"))}
    assert numbers == {
        "load, total": 3.0, "load of w0000": 2.0, "load of w0001": 1.0,
        "lag, total": 7, "lag of p:k00000": 0, "lag of p:k00001": 7, "lag of p:k00002": 0,
    }  # fmt: skip
    assert (shown["partitions moved"], shown["partitions that had no owner"]) == (0, 3)


def test_lags_are_those_of_the_sources_that_can_be_asked_and_of_no_very_large_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = GroupState(MemoryServer().connect(), "g")
    tree.found()
    for name in ("a/1", "a/2", "b/1"):
        file = tmp_path / "p" / f"{name}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1\n")
    table = delta(str(tmp_path / "t"))
    places = {"p": f"{tmp_path}/p", "nowhere": "${NOT_SET_ANYWHERE}/q"}
    pipelines = [
        replace(Pipeline(files(place, format="csv", schema="n int", settle=0), table), name=name, group="g")
        for name, place in places.items()
    ]
    tree.grow("p", ("a", "b"))
    tree.grow("nowhere", ("c",))
    assert work.read_group_lags(tree, pipelines) == {"p:a": 2, "p:b": 1}
    monkeypatch.setattr(work, "MAX_MEASURED_PARTITIONS", 2)
    assert work.read_group_lags(tree, pipelines) == {}


def list_keys(table: str) -> set[str]:
    """The first column of a table of metadata in docs/protocol.md."""
    rows = PROTOCOL.read_text().split(f"\n| metadata of {table} |")[1].split("\n\n")[0].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_the_protocol_lists_what_an_epoch_and_a_batch_show() -> None:
    lags, pictured = {"p:k00000": 0}, {"picture": dg.MetadataValue.md("")}
    epoch = set(describe_epoch(publish(2, 3), pictured, lags, {}))
    shown = {re.sub(r" of w\d+$", " of <worker>", re.sub(r" of p:.*$", " of <partition>", key)) for key in epoch}
    assert list_keys("`<group>/assignment`") - shown == {"why no more moved", "look again at", "unreadable"}
    assert shown <= list_keys("`<group>/assignment`")
    batch = CommittedBatch("p:a", 0, 2, 5, 1, 3, 9, 4, 7, 0.5, "r", "c", healed=True)
    seen = BatchSample(("a/1.csv (offset 0)", "a/2.csv (offset 1)"), ({"n": 1},), 50)
    replay = ReplayedRange("p:a", 0, 1, 5, 1, 7, 0.5, "r", "c")
    described = *describe_batch(batch, "w1@1", seen, {"n": "integer"}), *describe_replay(replay, None, "2", seen)
    maintained = describe_maintenance(Maintained(Merged(), Merged(), 0, 0, 0, ()))
    made = {key for one in (*described, maintained) for key in one}
    said = list_keys("a pipeline's assets")
    assert said - made == {
        "dagster/table_name", "dagster/uri", "nothing new", "nothing to replay",
    }  # fmt: skip
    assert made <= said


def test_what_cannot_be_read_after_the_epoch_fails_no_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = GroupState(MemoryServer().connect(), "g")
    tree.found()
    tree.grow("p", ("a",))
    join(GroupState(tree.store, "g"), "w1", Live())

    class InMemory(ZooKeeperResource):
        @contextmanager
        def tree(self, group: str, is_guarded: bool = False) -> Iterator[GroupState]:
            assert group == "g"
            yield tree

    def refuse(*_: object) -> None:
        raise Unavailable("ZooKeeper went away")

    monkeypatch.setattr("rota.run.work.read_group_lags", refuse)
    made = make_assignment(Group("g"), (), Names())
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        done = dg.materialize([made], resources={"rota_zookeeper": InMemory()}, instance=instance)
    (event,) = done.get_asset_materialization_events()
    assert event.materialization.metadata["what happened"].value == "Epoch 1: w1 joined. 1 of 1 placed. Imbalance 1.00."
    assert "lag, total" not in event.materialization.metadata


# --- the picture ---


def test_a_picture_is_a_file_that_the_page_serves_and_the_newest_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_picture, "KEPT", 3)
    server = MemoryServer()
    tree = GroupState(server.connect(), "g")
    tree.found()
    names = Names(("staging",))
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for epoch in range(1, 6):
            shown = draw_picture(instance, tree, (), names, epoch)
        text = shown["picture"].value
        assert "](/logs/rota/staging/g/epoch-5/png)" in text
        assert len(text) < 200, "a longer one is behind a click"
        kept = sorted(tmp_path.rglob("*.png"))
        assert [file.stem for file in kept] == ["epoch-3", "epoch-4", "epoch-5"]
        image = kept[-1].read_bytes()
        assert (image[1:4], int.from_bytes(image[16:20])) == (b"PNG", 480), "wider, the page cuts it"
        assert not [file for file in kept[0].parent.iterdir() if file.suffix != ".png"]
        # the address that Dagster gives to a log of this key, but for its kind
        log = instance.compute_log_manager.get_log_metadata(names.picture("g", 5))
        assert str(log.stdout_download_url).removesuffix("/out") == "/logs/rota/staging/g/epoch-5"


def test_where_logs_are_no_files_there_is_no_picture_and_the_epoch_remains() -> None:
    tree = GroupState(MemoryServer().connect(), "g")
    tree.found()
    with dg.DagsterInstance.ephemeral() as instance:
        assert draw_picture(instance, tree, (), Names(), 1) == {}
