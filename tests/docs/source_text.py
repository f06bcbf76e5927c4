"""The texts that the program can print, read from its source: a placeholder replaces what is filled in."""

import ast
from functools import cache
from pathlib import Path

HOLE = "\0"


@cache
def read_texts(root: Path) -> tuple[str, ...]:
    """Every string of rota and of the card's folders, f-strings with a HOLE for each value."""
    folders = ("rota", "assets", "sensors", "resources", "dagster_project")
    files = (path for folder in folders for path in sorted((root / folder).rglob("*.py")))
    return tuple({text for file in files for text in _strings(ast.parse(file.read_text()))})


def _strings(tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (v.value if isinstance(v, ast.Constant) else HOLE for v in node.values)
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found
