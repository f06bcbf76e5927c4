"""The face loads from pipeline files alone, under the names of docs/protocol.md."""

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from rota.dagster.assets.names import Names
from rota.dagster.location import compose
from rota.ids import dagster_name
from rota.pipeline import load

names = Names()

ROOT = Path(__file__).parents[2]
FILE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files("${{ROTA_LANDING}}/{name}", format="csv", schema="a int"),
    table=delta("${{ROTA_TABLES}}/{name}"), group="{group}",
)
"""


def write(folder: Path, **pipelines: str) -> Path:
    for name, group in pipelines.items():
        (folder / f"{name}.py").write_text(FILE.format(name=name, group=group))
    return folder


def test_two_pipelines_of_one_group_and_one_of_another_stand_side_by_side(tmp_path: Path) -> None:
    defs = compose(load(write(tmp_path, a="day", b="day", c="night-shift")))
    dg.Definitions.validate_loadable(defs)
    repository = defs.get_repository_def()
    assert {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()} == {
        *("day/membership", "day/assignment", "night-shift/membership", "night-shift/assignment"),
        *(f"{p}/{asset}" for p in "abc" for asset in ("ownership", "records", "checkpoints")),
    }
    assert {s.name for s in repository.sensor_defs} == {
        *("day__membership", "night_2dshift__membership", "rota__automation"),
        *(f"{p}__{sensor}" for p in "abc" for sensor in ("backlog", "checks")),
    }
    assert {j.name for j in repository.get_all_jobs()} - {"__ASSET_JOB"} == {
        *("day__rebalance", "night_2dshift__rebalance", "rota__purge"),
        *(f"{p}__{job}" for p in "abc" for job in ("consume", "replay")),
    }
    assert not repository.schedule_defs
    for key in ("a/ownership", "b/ownership", "c/ownership"):
        node = repository.asset_graph.get(dg.AssetKey.from_user_string(key))
        assert isinstance(node.partitions_def, dg.DynamicPartitionsDefinition)
        assert node.partitions_def.name == f"{key[0]}/partitions"
        assert node.group_name == key[0]


def test_every_asset_has_an_owner_a_kind_a_group_and_a_description(tmp_path: Path) -> None:
    graph = compose(load(write(tmp_path, a="day"))).get_repository_def().asset_graph
    for node in graph.asset_nodes:
        assert node.owners, node.key
        assert node.kinds, node.key
        assert node.group_name == node.key.path[0]
        assert node.description, node.key


@pytest.mark.parametrize("clash", [("a-b", "a_b"), ("a.b", "a-b"), ("a_2db", "a-b"), ("a_5f2db", "a_2db")])
def test_no_two_ids_share_a_name(clash: tuple[str, str]) -> None:
    one, two = (dagster_name(part, "backlog") for part in clash)
    assert one != two


def test_a_refused_file_is_shown_and_the_others_are_served(tmp_path: Path) -> None:
    write(tmp_path, good="day")
    (tmp_path / "bad.py").write_text("raise ValueError('half written')")
    graph = compose(load(tmp_path)).get_repository_def().asset_graph
    membership = graph.get(names.membership("day"))
    assert "half written" in (membership.description or "")
    assert "bad.py" in membership.metadata["refused"]
    assert graph.has(names.records("good"))
    assert not graph.has(names.records("bad"))


def test_the_checkout_loads_from_any_directory_with_no_zookeeper_and_no_java(tmp_path: Path) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("ROTA_") and k != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-w", str(ROOT / "workspace.yaml")],
        cwd=tmp_path,
        env={**environ, "PATH": "/nowhere", "ROTA_ZOOKEEPER": "127.0.0.1:1", "DAGSTER_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Validation successful for code location rota" in done.stderr + done.stdout


def test_loading_the_face_imports_nothing_heavy() -> None:
    heavy = ["pyspark", "pandas", "deltalake", "matplotlib", "kazoo", "pyarrow", "ortools"]
    code = f"import sys, dagster_project.own; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
