"""What is installed and what is shown: the wheel holds one package, the root is the user's own card."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CARD = {"dagster_project", "assets", "resources", "sensors", "tests", "workspace.yaml", "pyproject.toml", "README.md"}
BESIDE = {
    *("rota", "pipelines", "benchmarks", "docs", "CHANGELOG.md", "CONTRIBUTING.md"),
    *("Makefile", "LICENSE", "requirements.lock", ".ci", ".gitignore"),
}


def test_the_wheel_holds_rota_only_and_the_cards_folders_in_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, timeout=120)
    (wheel,) = tmp_path.glob("rota-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"rota"}
    assert "rota/py.typed" in names
    for folder in ("assets", "sensors", "resources"):
        mine = {f"rota/dagster/{folder}/{path.name}" for path in (ROOT / folder).glob("*.py")}
        assert mine == {name for name in names if name.startswith(f"rota/dagster/{folder}/")}


def test_the_root_is_the_card_and_the_engine() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert {path.split("/")[0] for path in tracked} - BESIDE == CARD
