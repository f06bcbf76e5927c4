"""Find the line of a pipeline file that a failure of Spark comes from.

Law: a place names a file in the folder of the pipeline's file, or a folder below. Lines of Spark, of rota and of installed
libraries are passed over. Where Spark reports no line, the place lists the lines that name the unresolved column.
"""

import ast
import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from rota.dataplane.spark.words import CALL_SITE, FRAME, UNRESOLVED_NAMES

MAX_LINES = 3  # a column that more lines name gets no place: a long list does not help


def find_place(error: BaseException, module: ModuleType | None) -> str:
    """Find the user's line that raised `error`.

    Args:
        error: what Spark, or the transform on the driver, raised.
        module: the pipeline's module; None for a pipeline that no file declares.

    Returns:
        "mine.py, line 3"; empty where no line of the user's code is known.
    """
    file = getattr(module, "__file__", None)
    if not file:
        return ""
    folder = os.path.join(Path(file).resolve().parent, "")
    for found in (_list_frames_of_functions(error), _list_call_sites(error), _list_frames(error)):
        for path, line in reversed(found):
            if os.path.realpath(path).startswith(folder):
                return f"{os.path.relpath(os.path.realpath(path), folder)}, line {line}"
    lines = sorted(set(_find_naming_lines(error, Path(file))))
    if not 0 < len(lines) <= MAX_LINES:
        return ""
    return f"{Path(file).name}, line {' or '.join(map(str, lines))}"


def _list_frames_of_functions(error: BaseException) -> list[tuple[str, int]]:
    """Return the frames of a Python function that failed in an executor, outermost first."""
    return [(path, int(line)) for path, line in FRAME.findall(str(error))]


def _list_frames(error: BaseException) -> list[tuple[str, int]]:
    """Return the frames of this process, outermost first."""
    return [(one.filename, one.lineno or 0) for one in traceback.extract_tb(error.__traceback__)]


def _list_call_sites(error: BaseException) -> list[tuple[str, int]]:
    """Return where the failed expression was built. Spark raises when the plan is analyzed or run, far from there."""
    found = CALL_SITE.findall("\n".join(one.callSite() for one in _ask(error, "getQueryContext") if _is_python(one)))
    return [(path, int(line)) for path, line in reversed(found)]


def _is_python(context: object) -> bool:
    """Whether the context has a call site. The context of a text of SQL has none: its `callSite` raises."""
    return getattr(getattr(context, "contextType", lambda: None)(), "name", "") == "DataFrame"


def _ask(error: BaseException, method: str) -> Any:
    """Return what the method of a Spark error returns; nothing for an error without the method."""
    ask = getattr(error, method, None)
    return (ask() if ask else None) or []


def _find_naming_lines(error: BaseException, file: Path) -> Iterator[int]:
    """Yield the lines of the file that name the column that Spark does not resolve."""
    facts = dict(_ask(error, "getMessageParameters"))
    name = next((facts[one] for one in UNRESOLVED_NAMES if one in facts), "").strip("`\"'").split(".")[-1].strip("`\"'")
    if not name:
        return
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == name:
            yield node.end_lineno or node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and word.search(node.value):
            yield node.lineno
