"""What the commands print is bounded: a pipeline of 3,000 columns and 1,000 partitions, all parked and rewritten."""

import random
from pathlib import Path

import pytest

from rota.catalog import load
from rota.coordination.records import Parked
from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.ports import ASSIGN
from rota.ledger.values import Batch
from tests.dataplane.landing_folders import open_files
from tests.demo.small_group import Group, Run

COLUMNS, PARTITIONS = 3_000, 1_000
MAX_LINES, MAX_LETTERS = 300, 1_500  # of one command, and of one line
PIPELINE = """
from rota import Pipeline, delta, files
schema = ", ".join(f"column_{{n}} string" for n in range({columns}))
source = files({root!r} + "/land", format="csv", schema=schema, settle=0.0)
pipeline = Pipeline(source=source, table=delta({root!r} + "/table"))
"""


@pytest.fixture(scope="module")
def wide(group: Group, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each partition was consumed in one commit and is parked; every second one for a reason of its own."""
    root, tree = tmp_path_factory.mktemp("wide"), group.tree
    keys = [f"key-{n:04}" for n in range(PARTITIONS)]
    (root / "pipelines").mkdir()
    (root / "pipelines" / "wide.py").write_text(PIPELINE.format(columns=COLUMNS, root=str(root)))
    for key in keys:
        (root / "land" / key).mkdir(parents=True)
        (root / "land" / key / "0.csv").write_text("x\n")
    tree.grow("wide", keys)
    ids = [f"wide:{key}" for key in keys]
    pipeline = load(root / "pipelines").pipelines["wide"]
    open_files(pipeline).observe(ids, ASSIGN)
    main = PipelineTables.of(pipeline, "default", tree.meta().id).main
    claimed = main.claim(dict.fromkeys(ids, 1), dict.fromkeys(ids, 0))
    main.commit(claimed, Batch("c", "r", "w", "a", 1, dict.fromkeys(ids, (0, 1)), bad=dict.fromkeys(ids, 2)))
    names = ", ".join(f"column_{n}" for n in range(COLUMNS))
    chance = random.Random(1)
    for number, partition in enumerate(ids):
        words = "".join(chance.choices("abcdefgh", k=12)) if number % 2 else "one cause"
        tree.put(tree.paths.parking(partition), Parked(reason=f"{words}: missing {names}"[:2_000], offset=0, since=1.0))
    for key in keys:
        (root / "land" / key / "0.csv").write_text("x\ny\n")
    return root


@pytest.mark.parametrize(
    "words",
    [
        "status",
        "status --trouble",
        "status --pipeline wide",
        "why wide:key-0001",
        "history",
        "history wide:key-0001",
        "check",
    ],
)
def test_a_command_prints_a_bounded_number_of_bounded_lines(
    wide: Path, run: Run, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("ROTA_PIPELINES", str(wide / "pipelines"))
    lines = run(*words.split()).output.splitlines()
    print(words, len(lines), max(map(len, lines)))  # noqa: T201
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= MAX_LETTERS
    assert max(line.count("column_") for line in lines) <= COLUMNS / 10


def test_the_totals_count_the_partitions_that_are_not_printed(
    wide: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_PIPELINES", str(wide / "pipelines"))
    shown = run("status").output
    total = next(line.split() for line in shown.splitlines() if line.startswith("wide "))
    assert total[:2] == ["wide", f"{PARTITIONS:,}"]
    assert "803 partitions more. --trouble, --pipeline and --worker show fewer" in " ".join(shown.split())
    assert len(run.json("status")["partitions"]) == PARTITIONS + 3  # type: ignore[arg-type]
