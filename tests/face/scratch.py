"""Another project, outside the checkout: the built wheel, and a folder `assets` of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.waiting import LONG

ROOT = Path(__file__).parents[2]
BUILT = (  # what a wheel is made of
    *("rota", "assets", "sensors", "resources", "dagster_project", "pipelines"),
    *("workspace.yaml", "pyproject.toml", "README.md", "LICENSE"),
)
THEIRS = {
    "assets/__init__.py": "",
    "assets/orders.py": """
import dagster as dg

@dg.asset
def orders(spark: dg.ResourceParam[str]) -> str:
    return spark
""",
    "pipelines/flights.py": """
import dagster as dg
from rota import Pipeline, delta, files

pipeline = Pipeline(source=files("landing", format="json", schema="n int", settle=0), table=delta("table"))

@dg.asset(deps=[["flights", "records"]])
def delays() -> None:
    pass
""",
    "location.py": """
import multiprocessing
import os

before = multiprocessing.get_context("spawn").Process, dict(os.environ)

import dagster as dg

import assets.orders
import rota.dagster

assert assets.__file__.startswith(os.getcwd()), assets.__file__
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[assets.orders.orders],
        resources={"spark": "theirs", "zookeeper": "too"},
        executor=dg.multiprocess_executor,
    ),
    rota.dagster.definitions("pipelines", key_prefix="staging"),
)
assert (multiprocessing.get_context("spawn").Process, dict(os.environ)) == before
""",
}

OF_DG = {
    "pyproject.toml": """
[project]
name = "mine"
version = "0.1.0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "mine"
""",
    "src/mine/__init__.py": "",
    "src/mine/defs/__init__.py": "",
    "src/mine/definitions.py": """
from pathlib import Path

from dagster import definitions, load_from_defs_folder

@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
""",
    "pipelines/flights.py": THEIRS["pipelines/flights.py"],
}


def build_wheel(folder: Path) -> Path:
    """Builds the wheel from a copy, as a checkout without leftovers; its path."""
    source = folder / "source"
    source.mkdir()
    for name in BUILT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    subprocess.run(command, check=True, timeout=LONG)
    (wheel,) = folder.glob("rota-*.whl")
    return wheel


def install_wheel(wheel: Path, folder: Path) -> Path:
    """Installs the wheel into a folder of its own, which goes onto PYTHONPATH."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, timeout=LONG)
    return folder


def write_project(folder: Path, files: Mapping[str, str] = THEIRS) -> Path:
    """Writes the project; its folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def plain_environment(installed: Path, home: Path) -> dict[str, str]:
    """An environment that knows nothing of rota but where it is installed."""
    theirs = {k: v for k, v in os.environ.items() if not k.startswith(("ROTA_", "DAGSTER_")) and k != "JAVA_HOME"}
    return {**theirs, "PYTHONPATH": str(installed), "DAGSTER_HOME": str(home)}
