"""What is installed and what is shown: the wheel holds one package, the root is the user's own card."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.face.scratch import OF_DG, plain_environment, write_project
from tests.waiting import LONG

ROOT = Path(__file__).parents[2]
CARD = {"dagster_project", "assets", "resources", "sensors", "tests", "workspace.yaml", "pyproject.toml", "README.md"}
BESIDE = {
    *("rota", "pipelines", "benchmarks", "simulator", "deploy", "docs", "CHANGELOG.md", "CONTRIBUTING.md"),
    *("Makefile", "LICENSE", "requirements.lock", ".ci", ".gitignore"),
}


def test_the_wheel_holds_rota_only_and_the_cards_folders_in_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"rota"}
    assert "rota/py.typed" in names
    for folder in ("assets", "sensors", "resources"):
        mine = {f"rota/dagster/{folder}/{path.name}" for path in (ROOT / folder).glob("*.py")}
        assert mine == {name for name in names if name.startswith(f"rota/dagster/{folder}/")}


PROJECT = ("workspace.yaml", "dagster_project", "pipelines")  # what `rota up` and `rota demo` run


def test_a_stack_outside_a_checkout_runs_the_project_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    """Its files are those of the root, Dagster loads them, and pipeline files of the current folder come first."""
    brought = installed / "rota" / "local" / "project"
    tracked = subprocess.run(["git", "ls-files", *PROJECT], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in tracked.splitlines():
        assert (brought / name).read_bytes() == (ROOT / name).read_bytes()
    environ = plain_environment(installed, tmp_path)
    ask = "from rota.local.folder import *; print(find_project(), find_pipelines(find_project()))"

    def find() -> list[str]:
        command = [sys.executable, "-c", ask]
        return subprocess.run(
            command, cwd=tmp_path, env=environ, check=True, capture_output=True, text=True, timeout=LONG
        ).stdout.split()

    assert find() == [str(brought), str(brought / "pipelines")]
    (tmp_path / "pipelines").mkdir()
    assert find() == [str(brought), str(tmp_path / "pipelines")]
    words = [sys.executable, "-m", "dagster", "definitions", "validate", "-w", str(brought / "workspace.yaml")]
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.release
def test_the_demo_runs_outside_a_checkout(installed: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rota", "demo", "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=plain_environment(installed, tmp_path), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["rows_read"] == figures["rows_written"] == 336_776


def test_the_root_is_the_card_and_the_engine() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert {path.split("/")[0] for path in tracked} - BESIDE == CARD


def test_another_projects_location_takes_the_wheel_and_keeps_what_is_its_own(installed: Path, tmp_path: Path) -> None:
    """Their `assets`, their resources `spark` and `zookeeper`, their executor and their way to start processes."""
    project = write_project(tmp_path)
    environ = {**plain_environment(installed, tmp_path), "PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-f", "location.py"],
        cwd=project, env=environ, capture_output=True, text=True, timeout=LONG,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    show = (
        "import rota, location; r = location.defs.get_repository_def(); print(rota.__file__);"
        "print(*sorted(k.to_user_string() for k in r.asset_graph.get_all_asset_keys()));"
        "print(*sorted(j.name for j in r.get_all_jobs())); print(*sorted(s.name for s in r.sensor_defs))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", show], cwd=project, env=environ, check=True, capture_output=True, text=True, timeout=LONG
    ).stdout.splitlines()
    where, keys, jobs, sensors = shown
    assert where == str(installed / "rota" / "__init__.py")
    assert {key for key in keys.split() if not key.startswith("staging/")} == {"orders"}
    assert {"staging/flights/records", "staging/delays", "staging/default/assignment"} <= set(keys.split())
    assert {job for job in jobs.split() if not job.startswith("staging__")} == {"__ASSET_JOB"}
    assert "staging__flights__consume" in jobs.split()
    assert all(sensor.startswith("staging__") for sensor in sensors.split())
    assert {"staging__default__membership", "staging__flights__backlog"} <= set(sensors.split())


def test_a_project_of_dg_scaffolds_the_component_and_checks_its_definitions(installed: Path, tmp_path: Path) -> None:
    """The YAML of docs/dagster.md. It had no attributes, with which `dg check defs` failed."""
    project = write_project(tmp_path, OF_DG)
    environ = plain_environment(installed, tmp_path / "home")
    environ["PYTHONPATH"] = os.pathsep.join((environ["PYTHONPATH"], str(project / "src")))

    def dg(*words: str) -> str:
        command = [str(Path(sys.executable).parent / "dg"), *words]
        done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, timeout=LONG)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    dg("scaffold", "defs", "rota.dagster.PipelinesComponent", "flights")
    package = project / "src" / "mine"
    yaml = package / "defs" / "flights" / "defs.yaml"
    assert "attributes:\n  pipelines: ../../pipelines" in yaml.read_text()
    shutil.copytree(project / "pipelines", package / "pipelines", dirs_exist_ok=True)
    yaml.write_text(f"{yaml.read_text()}  key_prefix: staging\n")
    assert "All definitions loaded successfully" in dg("check", "defs")
