"""What the pages say is so: code runs, commands parse, paths, links and identifiers exist, quoted lines can be printed."""

import ast
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import dagster as dg
import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from deltalake import CommitProperties, write_deltalake

from rota.catalog import load
from rota.cli import cli
from tests.docs.pages import (
    FENCE,
    LINK,
    PAGES,
    QUOTED,
    ROOT,
    Block,
    find_blocks,
    find_commands,
    list_anchors,
    name_page,
    strip_blocks,
)
from tests.docs.source_text import HOLE, read_texts
from tests.waiting import LONG

TROUBLES = ROOT / "docs" / "troubleshooting.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
FOLDERS = (
    "rota",
    "tests",
    "docs",
    "pipelines",
    "assets",
    "sensors",
    "resources",
    "dagster_project",
    "benchmarks",
    "simulator",
    ".ci",
)
PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/(?:[\w./-]+\.\w+|[\w./-]*/|run)?|\w+\.(?:md|yaml|toml)")
THEIRS = "pipelines/mine.py"  # the user's own file
TREE = re.compile(r"^( *)([\w.*/]+)(?: |$)")
LEAST = 4  # letters of a printed text by which it is known


def name_block(block: Block) -> str:
    return f"{name_page(block.page)}-{block.text.count(chr(10))}-lines"


def is_declaration(block: Block) -> bool:
    return "from rota import" in block.text


def is_location(block: Block) -> bool:
    return "rota.dagster" in block.text and "defs = " in block.text and not is_declaration(block)


def test_dagster_loads_the_code_locations_of_the_pages(tmp_path: Path) -> None:
    """As it loads a file, not as Python does: of two Definitions at the top of one it takes neither."""
    (tmp_path / "pipelines").mkdir()
    command = [sys.executable, "-m", "dagster", "definitions", "validate"]
    for number, block in enumerate(b for b in find_blocks("python") if is_location(b)):
        (tmp_path / f"location_{number}.py").write_text(block.text)
        command += ["-f", f"location_{number}.py"]
    environ = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("Validation successful for code location") == number + 1


@pytest.mark.parametrize("block", [b for b in find_blocks("python") if is_declaration(b)], ids=name_block)
def test_a_pipeline_of_the_pages_is_served(block: Block, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(block.text)
    served = load(tmp_path)
    assert not served.refused
    assert "mine" in served.pipelines or set(served.groups) - {"default"}


def needs_broker(block: Block) -> bool:
    """Whether tests/dataplane/rabbitmq runs the block, which has a broker."""
    return "import Publisher" in block.text


def is_users_test(block: Block) -> bool:
    """Whether tests/dataplane runs the block, which has a Spark."""
    return "import pytest" in block.text


def is_source(block: Block) -> bool:
    """Whether tests/dataplane/conformance puts the block under the suites of a source."""
    return "class SqliteSource" in block.text


OTHERS = (is_declaration, is_location, needs_broker, is_users_test, is_source)  # what else a block of Python is


@pytest.mark.parametrize("block", [b for b in find_blocks("python") if not any(of(b) for of in OTHERS)], ids=name_block)
def test_code_that_reads_a_table_reads_it(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"_partition": ["mine:shop=1"] * 2, "_offset": [0, 1], "amount": [1.5, 2.5]})
    table = tmp_path / ".rota" / "tables" / "orders"
    for op, attempt, ranges in (("commit", "a", '{"mine:shop=1": [0, 2]}'), ("claim", "", "{}")):
        said = {"rota.op": op, "rota.attempt": attempt, "rota.ranges": ranges}
        write_deltalake(
            table / "main", rows, mode="overwrite", commit_properties=CommitProperties(custom_metadata=said)
        )
    bad = {"_partition": ["mine:shop=1"] * 3, "_offset": [0, 1, 1], "_attempt": ["a", "dead", "a"]}
    columns = {name: ["x"] * 3 for name in ("_file", "_position", "_reason", "_raw")}
    write_deltalake(table / "quarantine", pa.table(bad | columns))
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    exec(compile(block.text, name_page(block.page), "exec"), found)
    assert len(found["frame"]) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("block", find_blocks("json"), ids=name_block)
def test_a_document_of_the_pages_is_planned(block: Block, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(block.text)
    answer = CliRunner().invoke(cli, ["plan", str(tmp_path / "state.json"), "--json"])
    assert answer.exit_code == 0, answer.output
    assert len(json.loads(answer.stdout)["assignment"]["w2"]) == 2, "as on the page"


def is_component(block: Block) -> bool:
    return block.text.startswith("type: ")


@pytest.mark.parametrize("block", [b for b in find_blocks("yaml") if is_component(b)], ids=name_block)
@pytest.mark.filterwarnings("ignore:Parameter `execution_type`")  # Dagster, over what it calls itself
def test_the_component_of_the_pages_serves_a_folder(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a project as `dg` makes one, with its folders where the page has them."""
    place = tmp_path / "shop" / "shop" / "defs" / "line"
    place.mkdir(parents=True)
    (place / "defs.yaml").write_text(block.text)
    (tmp_path / "shop" / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop"\n'
    )
    pipelines = tmp_path / "shop" / "shop" / "pipelines"
    pipelines.mkdir()
    (pipelines / "flights.py").write_text((ROOT / "pipelines" / "flights.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path / "shop"))
    found = dg.load_from_defs_folder(path_within_project=place).get_repository_def()
    assert found.asset_graph.has(dg.AssetKey(["staging", "flights", "records"]))


@pytest.mark.parametrize("block", [b for b in find_blocks("yaml") if not is_component(b)], ids=name_block)
def test_the_config_of_the_pages_is_a_batchs(block: Block) -> None:
    from rota.dagster.assets.names import Names
    from rota.dagster.assets.pipeline import Batch

    config = yaml.safe_load(block.text)["ops"][Names().consume_op("flights")]["config"]
    replay = Batch(**config).replay
    assert replay is not None
    assert (replay.start, replay.end) == (3, 5)


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_each_command_of_a_page_is_one(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets, variables = set(re.findall(r"^([\w-]+):", makefile, re.M)), set(re.findall(r"\$\((\w+)\)", makefile))
    for line in find_commands(page):
        words = shlex.split(line, comments=True) if line.startswith(("rota ", "make ")) else []
        if words[:1] == ["make"]:
            given = {word.partition("=")[0] for word in words if "=" in word}
            assert given <= variables, line
            assert {word for word in words[1:] if "=" not in word} <= targets, line
        elif words and words[1] != "...":
            command = cli.get_command(click.Context(cli), words[1])
            assert command is not None, line
            options = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
            assert {w.partition("=")[0] for w in words[2:] if w.startswith("-")} <= options, line


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_each_path_of_a_page_exists(page: Path) -> None:
    named = (word for text in QUOTED.findall(strip_blocks(page)) for word in text.split())
    missing = [path for path in named if PATH.fullmatch(path) and not list(ROOT.glob(path.rstrip("/")))]
    assert not set(missing) - {THEIRS}


def test_the_tree_of_the_architecture_is_the_tree() -> None:
    (tree,) = (
        text for kind, text in FENCE.findall(ARCHITECTURE.read_text()) if not kind and "dagster_project/ " in text
    )
    above: dict[int, Path] = {0: ROOT}
    for line in tree.splitlines():
        indent, entry = TREE.match(line).groups()  # type: ignore[union-attr]
        depth = len(indent) // 2
        place = above[depth] / entry
        assert list(above[depth].glob(entry.rstrip("/"))), place
        above[depth + 1] = place
    shown = set(re.findall(r"^  (\w+)/", tree.partition("\nrota/ ")[2], re.M))
    rooms = {folder.name for folder in (ROOT / "rota").iterdir() if (folder / "__init__.py").exists()}
    assert shown == rooms, "each room of rota, and no other"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_page)
def test_each_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(strip_blocks(page)):
        if not link.startswith("https://"):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), link
            assert not anchor or anchor in list_anchors(target), link


def read_rows(page: Path, after: str) -> list[list[str]]:
    """The cells of the first table behind this text, without its head."""
    table = page.read_text().split(after)[1].split("\n|---")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]


def test_the_page_of_the_assignors_has_the_figures_of_the_results() -> None:
    world, measured = "", dict[tuple[str, str], str]()
    for named, assignor, _, imbalance, moves, *_ in read_rows(ROOT / "docs" / "results.md", "<!-- simulate -->"):
        world = named.strip("*") or world
        measured[world, assignor] = f"{moves}, {imbalance}"
    shown = {row[0].strip("`"): row[2:] for row in read_rows(ROOT / "docs" / "assignors.md", "| name |")}
    worlds = ("crash", "drifting-loads")
    assert shown == {name: [measured[one, name] for one in worlds] for of, name in measured if of == worlds[0]}


def test_the_readme_has_the_figures_of_the_protocols() -> None:
    rows = {
        (row[0].replace(",", ""), row[1]): row
        for row in read_rows(ROOT / "docs" / "protocols.md", "<!-- protocols: table -->")
    }
    others = {"race": "race announced", "Azure's Event Processor greedy": "Azure greedy"}

    def say(seconds: str) -> str:
        amount = float(seconds.replace(",", ""))
        return f"{amount / 60:.0f} min" if amount > 60 else f"{amount:.0f} s"

    for name, fill, joined, moves, killed, idle in read_rows(ROOT / "README.md", "| protocol: decided by | all owned"):
        short = name.split(":")[0].replace("`", "").replace(",", "")
        row = rows[others.get(short, short), "1,000"]
        assert (fill, joined, moves, killed, idle) == (say(row[2]), say(row[3]), row[4], say(row[6]), row[10]), name


def test_each_picture_is_shown() -> None:
    shown = {
        Path(link).name
        for page in PAGES
        for link in LINK.findall(strip_blocks(page))
        if link.endswith((".png", ".gif"))
    }
    assert shown == {path.name for path in (ROOT / "docs").iterdir() if path.suffix in (".png", ".gif")}


def test_each_line_of_the_troubles_can_be_printed() -> None:
    rows = [line.split("|")[1] for line in TROUBLES.read_text().splitlines() if line.startswith("| ")]
    lines = [text for row in rows for text in QUOTED.findall(row) if not text.startswith("rota ")]
    assert len(lines) > 20
    for line in lines:
        pieces = re.compile(".*".join(map(re.escape, re.split(r" ?\.\.\. ?", line))), re.S)
        assert any(pieces.search(text) for text in read_texts(ROOT)), f"nothing prints {line!r}"


def test_what_the_readme_shows_is_what_the_commands_print() -> None:
    printed = re.findall(r"<!-- make \w+ -->\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(printed) == 2
    known = [text for text in read_texts(ROOT) if len(text.replace(HOLE, "").strip()) >= LEAST]
    forms = [re.compile(re.escape(text).replace(re.escape(HOLE), ".*") + ".*" * text.endswith(": ")) for text in known]
    lines = [*printed[0].replace("\n  ", " ").splitlines(), *printed[1].splitlines()]  # the first are wrapped
    for line in filter(None, (re.sub(r"^ *[0-9.]+ s  ", "", line) for line in lines)):
        assert any(form.fullmatch(line) for form in forms), line


def test_the_classes_of_the_glossary_exist() -> None:
    code = "\n".join(path.read_text() for path in sorted((ROOT / "rota").rglob("*.py")))
    first = (line.split("|")[1] for line in (ROOT / "docs" / "glossary.md").read_text().splitlines() if "**" in line)
    named = [word for cell in first for word in QUOTED.findall(cell) if word[0].isupper()]
    assert len(named) > 15
    assert not [word for word in named if not re.search(rf"^class {word}\b", code, re.M)]


FILLED = {"name", "module"}  # of a pipeline, by the loader of its file


def test_the_page_of_the_api_has_each_argument_with_its_default() -> None:
    page = ROOT / "docs" / "api.md"
    named = re.findall(r"^## `([\w.]+)`$", page.read_text(), re.M)
    for package in ("rota", "rota.dagster"):
        others = {"PipelinesComponent", "SparkResource", "ZooKeeperResource"}  # of Dagster's kinds: dagster.md has them
        exported = {f"{package}.{name}" for name in import_module(package).__all__ if name not in others}
        assert {name for name in named if name.rpartition(".")[0] == package} == exported
    for full in named:
        package, _, name = full.rpartition(".")
        given = inspect.signature(getattr(import_module(package), name)).parameters.values()
        known = {one.name: one.default for one in given if full != "rota.Pipeline" or one.name not in FILLED}
        rows = {row[0].strip("`"): row[1].strip("`") for row in read_rows(page, f"## `{full}`")}
        assert list(rows) == list(known), full
        for argument, shown in rows.items():
            default = known[argument]
            if default is inspect.Parameter.empty:
                assert not shown, f"{full}({argument})"
            elif repr(default) == "<factory>":
                assert shown == "{}", f"{full}({argument})"
            else:
                assert eval(shown) == default, f"{full}({argument})"


def test_the_page_of_sources_has_all_that_a_source_may_lack() -> None:
    """Each protocol beside `Source`, with its members."""
    page = (ROOT / "docs" / "sources.md").read_text().split("## A whole source")[0]
    rows = re.findall(r"^\| `(\w+)`[^|]*\| ([^|]*) \|", page, re.M)
    listed = {name: set(re.findall(r"`(\w+)`", members)) for name, members in rows}
    there: dict[str, set[str]] = {}
    for module in ("ports", "spark/spark_source"):
        for kind in ast.parse((ROOT / "rota" / "dataplane" / f"{module}.py").read_text()).body:
            if isinstance(kind, ast.ClassDef) and "runtime_checkable" in map(ast.unparse, kind.decorator_list):
                there[kind.name] = {one.name for one in kind.body if isinstance(one, ast.FunctionDef)}
    assert there == {name: listed.get(name) for name in there}
