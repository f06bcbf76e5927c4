"""The tests hold together: what two test files share is in a plain module, and tests use public names only."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.errors import DeadlineExceeded, FailedHealthCheck

from tests import tier

ROOT = Path(__file__).parents[2]
OURS = ("assets", "benchmarks", "dagster_project", "pipelines", "resources", "rota", "sensors", "simulator")
FILES = sorted((ROOT / "tests").rglob("*.py"))
LONGEST = 400  # lines
COLUMNS = {"_partition", "_offset", "_attempt", "_position", "_file", "_raw", "_reason"}  # see docs/protocol.md
DEFINED = re.compile(r"^ *(?:async +)?(?:def|class) +(\w+)", re.MULTILINE)
REPLACE = {"setattr", "getattr", "delattr"}  # they take a name as text

# What cannot be done by public names: file -> the private names, and why.
ALLOWED = {
    "face/bench.py": ("_core", "what Dagster's page shows of partitions has no public call"),
    "face/desk.py": ("_core", "which checks Dagster's page counts as evaluated has no public call"),
    "face/test_assets.py": ("_core", "what Dagster's page shows of stale data has no public call"),
    "face/test_alerts.py": (
        "_core",
        "a sensor and its ticks, as the daemon stores them, are made of private values only",
    ),
    "face/test_expected_errors.py": ("_core _grpc", "what Dagster's server hands on of a tick that failed is its own"),
    "conformance/test_lasting_threads.py": (
        "_connect_attempt _connection _state",
        "kazoo has no public way to end its loop as an error in it does",
    ),
    "face/test_ending.py": ("_core", "a run's code location has a private origin only"),
    "face/test_run_queue.py": ("_core", "a queued run needs a code location, which has a private origin only"),
    "face/test_private.py": ("_core", "it pins the private names of Dagster that rota uses"),
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


@cache
def find_private_functions() -> frozenset[str]:
    """The private functions, methods and classes of the code under test; columns of tables are no functions."""
    return frozenset(
        name
        for folder in OURS
        for path in (ROOT / folder).rglob("*.py")
        for name in DEFINED.findall(path.read_text())
        if is_private(name) and name not in COLUMNS
    )


Nodes = Sequence[ast.AST]  # all of a file


def read_nodes(source: str) -> Nodes:
    return list(ast.walk(ast.parse(source)))


def find_own_names(nodes: Nodes) -> set[str]:
    """The private names that a test file defines itself: functions, classes, attributes of its own `self`."""
    own = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            own.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
    return own


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def list_imports(nodes: Nodes) -> Iterator[str]:
    """The dotted names that a file imports, also inside functions."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def last_name(node: ast.expr) -> str:
    """The name after the last dot."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def find_private_uses(nodes: Nodes, functions: frozenset[str]) -> Iterator[str]:
    """Each private name that a test imports, reads of something that is not its own, replaces, or names as text."""
    own = find_own_names(nodes)
    yield from (part for name in list_imports(nodes) for part in name.split(".") if is_private(part))
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if node.attr not in own or (isinstance(node.value, ast.Call) and last_name(node.value.func) == "super"):
                yield node.attr
        elif isinstance(node, ast.Call) and last_name(node.func) in REPLACE:
            texts = [a.value for a in node.args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            yield from (part for text in texts for part in text.split(".") if is_private(part))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in functions:
            yield node.value


def test_a_test_uses_public_names_only() -> None:
    """A guard that a test takes away has a public name; a helper that two files use is in a plain module."""
    for path in FILES:
        nodes = read_nodes(path.read_text())
        used = set(find_private_uses(nodes, find_private_functions()))
        allowed = set(ALLOWED.get(str(path.relative_to(ROOT / "tests")), ("", ""))[0].split())
        assert used <= allowed, f"{path} uses {sorted(used - allowed)}: give it a public name, or a public way"
        assert used >= allowed, f"{path} does not use {sorted(allowed - used)} any more: take it off the list"
        parts = {part for name in list_imports(nodes) for part in name.split(".")}
        assert not [part for part in parts if part.startswith("test_")], f"{path} imports a test module"


@pytest.mark.parametrize(
    "source",
    [
        "from rota.run.consume import _not_public",
        "import rota._hidden",
        "run._commit()",
        "monkeypatch.setattr(Run, '_any', f)",
        "monkeypatch.setattr('rota.run.consume._any', f)",
        "STEPS = {'x': (owner, '_not_public')}",
        "class B(A):\n    def _act(self):\n        return super()._act()",
    ],
)
def test_a_private_use_is_found(source: str) -> None:
    assert list(find_private_uses(read_nodes(source), frozenset({"_not_public"})))


def test_what_a_test_defines_itself_is_no_private_use() -> None:
    source = (
        "class A:\n    def __init__(self):\n        self._at = 1\n    def _go(self):\n        self._at += 1\nA()._go()"
    )
    assert not list(find_private_uses(read_nodes(source), frozenset()))


def test_the_name_of_a_test_file_does_not_repeat_its_folder() -> None:
    """The folder names the room, so a file does not repeat it."""
    assert not [path for path in FILES if path.name.startswith(f"test_{path.parent.name}_")]


@pytest.mark.parametrize("unhurried", [True, False], ids=["as it is", "by the clock"])
def test_no_property_is_judged_by_the_clock(unhurried: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypothesis fails an example that takes 200 ms, and draws that take seconds. On a busy machine neither is a fault."""
    ticks = count()
    monkeypatch.setattr("time.perf_counter", lambda: float(next(ticks)))

    @settings() if unhurried else settings(deadline=200, suppress_health_check=[])
    @given(st.integers())
    def hold_in_seconds(_: int) -> None:
        pass

    if unhurried:
        hold_in_seconds()
    else:
        with pytest.raises((DeadlineExceeded, FailedHealthCheck)):
            hold_in_seconds()


IGNORED = """
from signal import SIG_IGN, SIGINT, SIGTERM, getsignal, raise_signal, signal
signal(SIGINT, SIG_IGN)
{}
signal(SIGTERM, getsignal(SIGINT))
raise_signal(SIGTERM)
"""


@pytest.mark.parametrize("first", ["import tests.conftest", "pass"], ids=["as it is", "without"])
def test_what_tests_start_obeys_sigterm_also_behind_an_ampersand(first: str) -> None:
    """A shell's `&` has SIGINT ignored, and Dagster then SIGTERM: a process that inherits both would never be ended."""
    done = subprocess.run([sys.executable, "-c", IGNORED.format(first)], cwd=ROOT, capture_output=True, check=False)
    assert (b"KeyboardInterrupt" in done.stderr) == (first != "pass")


def test_files_of_tests_fit_in_the_head() -> None:
    assert not {str(p.relative_to(ROOT)): n for p in FILES if (n := len(p.read_text().splitlines())) > LONGEST}


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_each_benchmark_finds_what_it_imports(path: Path) -> None:
    """No other test starts most of them, and what they import may have moved."""
    import_module(f"benchmarks.{path.stem}")


def test_the_push_tier_runs_each_case_within_some_days(monkeypatch: pytest.MonkeyPatch) -> None:
    for test in (*tier.SHARES, *tier.TURNS):
        file, _, name = test.partition("::")
        assert re.search(rf"\ndef {name}\(", (ROOT / "tests" / file).read_text()), test
    test, parts = next(iter(tier.SHARES.items()))
    cases = [f"{test}[{number}]" for number in range(10)]
    monkeypatch.setattr(tier, "PUSH", False)
    assert not tier.find_left_out(cases)
    monkeypatch.setattr(tier, "PUSH", True)
    run: list[str] = []
    for day in range(7, 7 + parts):
        monkeypatch.setattr(tier, "DAY", day)
        left = tier.find_left_out(cases)
        run += [case for case in cases if case not in left]
    assert sorted(run) == cases
    left = []
    for day in (7, 8):
        monkeypatch.setattr(tier, "DAY", day)
        left += tier.find_left_out(())
    assert sorted(left) == sorted(tier.TURNS), "each runs on one of two days"
