"""The tests hold together: what two test files share is in a plain module, and tests use public names only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"assets", "benchmarks", "dagster_project", "pipelines", "resources", "rota", "sensors", "tests"}
FILES = sorted((ROOT / "tests").rglob("*.py"))


def list_imports(path: Path) -> Iterator[str]:
    """The dotted names that a file imports from this repository, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in OURS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_test_imports_a_private_name_or_a_test_module(path: Path) -> None:
    for name in list_imports(path):
        parts = name.split(".")
        assert not any(part.startswith("_") and not part.startswith("__") for part in parts), f"{path} imports {name}"
        assert not any(part.startswith("test_") for part in parts), f"{path} imports {name}"


def test_a_test_file_says_its_subject_once() -> None:
    """The folder names the room, so a file does not repeat it."""
    assert not [path for path in FILES if path.name.startswith(f"test_{path.parent.name}_")]
