"""The house holds: imports go one way, and each outside library has its room."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each may import those before it, and rota. The first three are `rota.dagster.<folder>`, through links in `rota/dagster/`.
CARD = ["resources", "assets", "sensors", "dagster_project"]
ROOMS = {  # a room of rota -> the rooms that it may import
    "core": {"core"},
    "coordination": {"core", "coordination"},
    "deltalog": {"deltalog"},
    "ledger": {"deltalog", "ledger"},
    "dataplane": {"core", "deltalog", "ledger", "dataplane"},
    "run": {"core", "coordination", "ledger", "dataplane", "run"},
    "group": {"core", "coordination", "ledger", "dataplane", "group"},
    "people": {"core", "coordination", "ledger", "dataplane", "run", "people"},
    "face": {"core", "coordination", "ledger", "dataplane", "run", "group", "face"},
    "local": {"coordination", "local"},  # processes on one machine
    "demo": {"coordination", "local", "demo"},  # it watches and strikes; it shares nothing with what it verifies
}
VERBS = {"run", "group", "people", "face"}  # rooms that may ask what a file declares, and what that means
LEAVES = {
    "errors",
    "held",
    "ids",
    "java",
    "machine",
    "portions",
    "record",
    "settings",
    "pipeline",
    "stores",
}  # modules of rota that every room may import
ONLY_IN = {  # outside library -> where it may be imported
    "confluent_kafka": {"rota/dataplane/kafka", "rota/local", "rota/demo/landed_topic.py"},
    "fastavro": {"rota/dataplane"},
    "grpc_tools": {"rota/dataplane"},
    "jsonschema_rs": {"rota/dataplane"},
    "kazoo": {"rota/coordination"},
    "pyspark": {"rota/dataplane", "rota/pipeline.py", "pipelines", "resources"},
    "deltalake": {"rota/stores.py", "rota/deltalog", "rota/dataplane", "pipelines"},
    "pika": {"rota/dataplane/rabbitmq"},
    "obstore": {"rota/stores.py", "rota/dataplane/files"},
    "dagster": {"assets", "resources", "sensors", "dagster_project", "pipelines", "rota/dagster"},
    "dagster_pyspark": {"resources"},
    "ortools": {"rota/core"},
    "prometheus_client": {"rota/face/metrics.py", "rota/cli/export.py"},
}
IMPLEMENTATIONS = (  # of the ports in rota/dataplane/ports.py
    "rota.dataplane.delta",
    "rota.dataplane.files",
    "rota.dataplane.kafka",
    "rota.dataplane.rabbitmq",
    "rota.dataplane.spark.spark_job",
    "rota.dataplane.spark.spark_source",
)
CORE_LIBRARIES = {"numpy", "ortools"}
TICKED, WORD = re.compile(r"`([a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*)`"), re.compile(r"\w+")


def sources(*folders: str) -> list[Path]:
    return sorted(p for f in folders for p in (ROOT / f).rglob("*.py"))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(list_imports(path))


def list_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(path: Path) -> str:
    """core, coordination, ...; 'rota' for a module directly below it; or the card's folder."""
    parts = path.relative_to(ROOT).parts
    if parts[0] != "rota":
        return parts[0]
    return parts[1] if len(parts) > 2 else "rota"


def test_imports_go_one_way() -> None:
    for path in sources("rota", *CARD):
        check_direction(path)


def check_direction(path: Path) -> None:
    here = room(path)
    for name in imports(path):
        top, *rest = name.split(".")
        card = rest[1] if name.startswith("rota.dagster.") else top
        if here in CARD:
            assert card not in CARD or CARD.index(card) <= CARD.index(here), f"{path} imports {name} upwards"
            assert top not in CARD[:3], (
                f"{path} imports {name}, which depends on the working directory: import rota.dagster.{top}"
            )
            continue
        if here == "dagster":
            continue  # it puts the card together
        of_the_card = card in CARD or name.startswith("rota.dagster")
        assert not of_the_card, f"{path} of the engine imports {name} of the card"
        if top == "rota" and rest and here in ROOMS and (ROOT / "rota" / rest[0]).is_dir():
            assert rest[0] in ROOMS[here], f"room {here} imports {name}: {path}"
        if top == "rota" and rest and here in ROOMS and not (ROOT / "rota" / rest[0]).is_dir():
            assert rest[0] in LEAVES | ({"catalog", "registry"} if here in VERBS else set()), f"{path} imports {name}"
        if top == "rota" and rest and here == "rota" and not path.name.startswith("__"):
            assert rest[0] not in VERBS | {"cli", "local", "demo"}, f"{path} imports the verb {name}"


def list_needs(nodes: Iterable[ast.stmt]) -> Iterator[str]:
    """What a module imports as it is loaded, and for types alone."""
    for node in nodes:
        if isinstance(node, ast.If):
            yield from list_needs(node.body)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (name for alias in node.names for name in (f"{node.module}.{alias.name}", node.module))


def test_no_module_needs_one_that_needs_it() -> None:
    """Also where only a type is needed."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sources("rota", "simulator")}
    needs = {name: {one for one in list_needs(parse(path).body) if one in names} for name, path in names.items()}
    TopologicalSorter(needs).prepare()  # raises CycleError, which names them


def test_nothing_that_ships_knows_its_judge() -> None:
    """The simulator drives the engine; the wheel has none of it."""
    for path in sources("rota", *CARD):
        assert not [name for name in imports(path) if name.split(".")[0] == "simulator"], f"{path} imports its judge"
    for path in sources("simulator"):
        rooms = {name.split(".")[1] for name in imports(path) if name.startswith("rota.")}
        driven = {"core", "coordination", "deltalog", "ledger", "dataplane", "run", "group"}
        assert rooms <= driven | LEAVES | ({"cli"} if path.name == "__main__.py" else set()), f"{path} imports {rooms}"


def test_each_library_has_its_room() -> None:
    for path in sources("rota", "pipelines", *CARD):
        where = str(path.relative_to(ROOT))
        for name in imports(path):
            top = name.split(".")[0]
            if top in ONLY_IN:
                assert any(where.startswith(prefix) for prefix in ONLY_IN[top]), f"{where} imports {name}"


def test_only_the_registry_names_implementations_of_ports() -> None:
    """A source, a table or a job is found by its declaration. A new one needs a folder and a line in the registry."""
    for path in sources("rota", *CARD):
        where = str(path.relative_to(ROOT))
        if where.startswith(("rota/dataplane/", "rota/kafka/", "rota/rabbitmq/")) or where == "rota/registry.py":
            continue
        named = [name for name in imports(path) if name.startswith(IMPLEMENTATIONS)]
        assert not named, f"{where} goes past the ports: {named}"


def test_no_source_knows_a_table() -> None:
    """Beside its declaration, a source gets a `SourceContext`: a queue imported Delta to read its own offset."""
    for path in sources("rota/dataplane"):
        if path.parent.name in ("delta", "spark"):
            continue
        where = str(path.relative_to(ROOT))
        assert not [n for n in imports(path) if n.startswith("rota.dataplane.delta")], f"{where} imports a table"
        named = [n for n in ast.walk(parse(path)) if isinstance(n, ast.Attribute) and n.attr == "table"]
        assert not [n for n in named if ast.unparse(n) == "pipeline.table"], f"{where} asks which table it has"


def test_a_source_has_no_member_that_does_nothing() -> None:
    """A source lacks the members of what it cannot do: see the protocols beside `Source`."""
    for path in sources("rota/dataplane", "simulator", "tests"):
        for kind in (node for node in ast.walk(parse(path)) if isinstance(node, ast.ClassDef)):
            bases = {ast.unparse(one) for one in kind.bases}
            if not kind.name.endswith("Source") or bases & {"Protocol", "ABC"}:
                continue
            for one in (node for node in kind.body if isinstance(node, ast.FunctionDef)):
                body = one.body[1:] if ast.get_docstring(one) else one.body
                said = ast.unparse(body[0]) if body else ""
                empty = said in ("", "...", "return", "return None", "return {}", "return ()", "return ''")
                assert not empty or one.name.startswith("_"), f"{path} {kind.name}.{one.name} does nothing"


def test_one_module_knows_how_a_log_lies_on_its_store() -> None:
    """The verifier of the demo reads it by itself: it shares nothing with what it verifies."""
    named = [path for path in sources("rota", *CARD) if "_delta_log" in path.read_text()]
    where = {str(path.relative_to(ROOT)) for path in named if room(path) != "demo"}
    assert where == {"rota/deltalog/log_files.py"}


def test_one_module_writes_parquet() -> None:
    writes = re.compile(r"\bpq\.(ParquetWriter|write_table)\b")
    found = {str(path.relative_to(ROOT)) for path in sources("rota", *CARD) if writes.search(path.read_text())}
    assert found == {"rota/deltalog/parquet.py"}


def test_the_log_is_a_library_without_the_engine() -> None:
    named = {name for path in sources("rota/deltalog") for name in imports(path) if name.startswith("rota.")}
    assert {name.split(".")[1] for name in named} == {"deltalog", "errors", "stores"}


def test_the_ledger_takes_no_path() -> None:
    """A table may be in a bucket, so that no module takes a `Path`."""
    assert not [
        path for path in sources("rota/deltalog", "rota/ledger") if any(n.startswith("pathlib") for n in imports(path))
    ]


def test_one_module_loops_around_a_commit() -> None:
    """Every change goes through it, also the merge of files, which tries once."""
    rooms = sources("rota/deltalog", "rota/ledger", "rota/dataplane")
    assert [path.name for path in rooms if "range(TRIES)" in path.read_text()] == ["change.py"]
    assert {path.name for path in rooms if any(map(appends_draft, ast.walk(parse(path))))} == {"change.py"}


def appends_draft(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"):
        return False
    return bool(node.args) and ast.unparse(node.args[0]).startswith(("Draft(", "draft"))


def test_a_declaration_imports_no_reader_of_it() -> None:
    rooms = {name.split(".")[1] for name in imports(ROOT / "rota/pipeline.py") if name.startswith("rota.")}
    assert rooms <= LEAVES | {"core"}, "every room may import it"


def test_core_needs_numpy_and_a_flow_solver_only() -> None:
    import sys

    for path in sources("rota/core"):
        for name in imports(path):
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names | CORE_LIBRARIES | {"rota"}, f"{path} imports {name}"


def test_modules_fit_in_the_head() -> None:
    large = {
        str(p.relative_to(ROOT)): n
        for p in sources("rota", "simulator", *CARD)
        if (n := len(p.read_text().splitlines())) > 400
    }
    assert not large


def test_no_module_has_an_empty_name() -> None:
    empty = {"utils", "common", "helpers", "base", "manager"}
    assert not [p for p in sources("rota", "simulator", "tests", *CARD) if p.stem in empty or p.parent.name in empty]


def test_tests_are_no_package() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize(
    "module",
    [
        "run/eligibility",
        "run/work",
        "face/history",
        "coordination/snapshot",
        "coordination/group_reader",
    ],
)
def test_modules_that_only_read_a_group_take_a_reader(module: str) -> None:
    named = [name for name in imports(ROOT / f"rota/{module}.py") if name.startswith("rota.coordination.group_state")]
    assert not named, f"{module} could write: {named}"


def test_a_name_is_imported_from_its_module() -> None:
    """Only a package may export names of its modules."""
    for path in sources("rota"):
        named = {node.id for node in ast.walk(parse(path)) if isinstance(node, ast.Name)}
        assert path.name == "__init__.py" or "__all__" not in named, f"{path} has an __all__"


THEIRS = {"fillna", "locale", "rota__purge"}  # Spark's words, and the name of a job that is put together


def test_docstrings_name_what_there_is() -> None:
    """Names in backticks. A word counts wherever the code has it. Renamed by a machine, several named nothing."""
    named_in_docs: list[tuple[Path, str]] = []
    words: set[str] = set(THEIRS)
    for path in sources("rota", "simulator", *CARD, "pipelines"):
        words |= {path.stem, *path.relative_to(ROOT).parts}
        nodes = list(ast.walk(parse(path)))
        owners = [n for n in nodes if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
        docs = [n.body[0].value for n in owners if ast.get_docstring(n) and isinstance(n.body[0], ast.Expr)]
        named_in_docs += [(path, name) for one in docs for name in TICKED.findall(one.value)]  # type: ignore[attr-defined]
        for node in nodes:
            named = [getattr(node, field, None) for field in ("id", "attr", "arg", "name", "module")]
            texts = [node.value] if isinstance(node, ast.Constant) and node not in docs else []
            words |= {word for text in (*named, *texts) if isinstance(text, str) for word in WORD.findall(text)}
    assert len(named_in_docs) > 500
    assert not [f"{path}: {name}" for path, name in named_in_docs if not set(WORD.findall(name)) <= words]
