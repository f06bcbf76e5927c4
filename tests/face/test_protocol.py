"""The section "Dagster" of docs/protocol.md is what the face has: names, keys, checks, config, tags."""

import re
from pathlib import Path

import dagster as dg
import pytest

from rota.catalog import load
from rota.dagster.assets import page_keys
from rota.dagster.assets.names import LIVENESS_TAG, Names
from rota.dagster.assets.pipeline import Batch, Replay
from rota.dagster.location import compose
from rota.dagster.sensors.backlog import make_run_request
from rota.ids import PARKED_TAG
from rota.run.work import Work

ROOT = Path(__file__).parents[2]
FILE = """
import dagster as dg
from rota import Group, Pipeline, delta, files
group = Group("G")
pipeline = Pipeline(source=files("x", format="csv", schema="a int"), table=delta("y"), group="G")
own = dg.AssetSpec("own", automation_condition=dg.AutomationCondition.eager())
"""


def list_keys(table: str) -> set[str]:
    """The first column of the table whose heading starts so, names in backquotes."""
    section = (ROOT / "docs" / "protocol.md").read_text().split("\n## Dagster\n")[1].split("\n## ")[0]
    rows = section.split(f"\n| {table}")[1].split("\n\n")[0].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def put_placeholders(name: str) -> str:
    return re.sub(r"\bP(?=$|/|__)", "<pipeline>", re.sub(r"\bG(?=$|/|__)", "<group>", name))


def test_the_page_has_what_the_protocol_lists(tmp_path: Path) -> None:
    (tmp_path / "P.py").write_text(FILE)
    repository = compose(load(tmp_path)).get_repository_def()
    graph = repository.asset_graph
    assert {put_placeholders(key.to_user_string()) for key in graph.get_all_asset_keys()} - {"own"} == list_keys(
        "asset key"
    )
    sets = {d.name for n in graph.asset_nodes if isinstance(d := n.partitions_def, dg.DynamicPartitionsDefinition)}
    jobs = [job for job in repository.get_all_jobs() if not job.name.startswith("__")]
    names = {
        *(s.name for s in repository.sensor_defs),
        *(job.name for job in jobs),
        *(n.name for n in repository.get_job("P__consume").nodes),
        *sets,
    }
    assert {put_placeholders(str(name)) for name in names} == list_keys("name")
    assert {key.name for key in graph.asset_check_keys} == list_keys("check")
    assert set(Batch.model_fields) == list_keys("config of")
    assert {field.alias or name for name, field in Replay.model_fields.items()} == {
        *("from", "to", "files", "since", "until", "stamped", "changed"),
    }
    (pipeline,) = load(tmp_path).pipelines.values()
    launched = make_run_request(pipeline, Names(("staging",)), Work("w1@0", "w1", {"P:a": (0, 1)}), 7).tags
    assert launched["rota/epoch"] == "staging/G/7"
    tags = {tag for of in (*(job.tags for job in jobs), launched) for tag in of if not tag.startswith("dagster/")}
    assert {*tags, LIVENESS_TAG, PARKED_TAG} == list_keys("run tag")


def test_the_assets_have_what_a_pipeline_declares_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "/tables")
    said = """
from datetime import timedelta
import dagster as dg
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files("x", format="csv", schema="a int"), table=delta("${{PLACE}}/{name}"),
    owners=("a@example.com",), tags={{"tier": "1"}},
    kinds=("csv",), freshness=dg.FreshnessPolicy.time_window(timedelta(hours=1)),
    automation=dg.AutomationCondition.on_cron("@daily"),
)
"""
    for name in ("P", "Q"):
        (tmp_path / f"{name}.py").write_text(said.format(name=name))
    graph = compose(load(tmp_path)).get_repository_def().asset_graph
    nodes = {key: graph.get(key) for key in Names().consumed("P")}
    assert {node.group_name for node in nodes.values()} == {"P"}, "two pipelines are two rows"
    assert all(node.owners == ["a@example.com"] and node.tags["tier"] == "1" for node in nodes.values())
    assert all(node.automation_condition for node in nodes.values())
    records = nodes[Names().records("P")]
    assert records.kinds == {"csv"}
    assert records.metadata["dagster/uri"] == "/tables/P/main"
    assert records.freshness_policy


def test_the_keys_of_the_page_are_those_that_the_protocol_lists() -> None:
    """And the page lists which are read back: renaming one changes what is reported and what is purged."""
    page = (ROOT / "docs" / "protocol.md").read_text()
    named = {value for name in dir(page_keys) if name.isupper() and isinstance(value := getattr(page_keys, name), str)}
    assert named <= (
        list_keys("metadata of a pipeline's assets")
        | list_keys("metadata of `<group>/assignment`")
        | {page_keys.NEEDS, page_keys.ERROR}
    )
    (read_back,) = re.findall(r"Rota reads (.*?)\n\n", page, re.S)
    assert {name for name in re.findall(r"`([\w ]+)`", read_back) if name in named - {"checkpoints"}} == {
        *page_keys.READ_BACK
    }


def test_a_key_of_the_page_is_written_out_in_one_place() -> None:
    """A second copy of a text is overlooked when it changes."""
    for folder in ("assets", "sensors", "rota/dagster"):
        for path in (ROOT / folder).glob("*.py"):
            text = path.read_text()
            wrong = [key for key in page_keys.READ_BACK if f'"{key}":' in text or f'("{key}"' in text]
            assert path.stem == "page_keys" or not wrong, f"{path}: {wrong}"
