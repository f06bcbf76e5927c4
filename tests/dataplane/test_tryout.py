"""`rota try`: its result for good and for broken pipelines is that of a run, and it consumes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rota.registry import open_ports, open_tryout
from rota.run.consume import CommittedBatch, ParkedPartition
from rota.run.tryout import try_out
from tests.dataplane.tried import try_file
from tests.dataplane.world import World

BEGIN = """
from pyspark.sql import functions as F
"""
END = """
pipeline = Pipeline(source=source({source}), table=delta({{table!r}}), transform={transform})
"""
JSON = '{"n": 1, "word": "x"}\n{"n": 2, "word": "y"}\n'


@dataclass(frozen=True)
class Case:
    """A pipeline with a file in partition `a`; `said` is in its error, `{line}` there is the line that ends with `# <-`."""

    said: str = ""
    body: str = ""
    source: str = ""
    content: str = JSON
    name: str = "1.json"
    rows: int = 0
    bad: int = 0

    def write(self, world: World) -> None:
        transform = "transform" if "def transform" in self.body else "None"
        world.write(BEGIN + self.body + END.format(source=self.source, transform=transform))
        world.put(f"a/{self.name}", self.content.encode())

    def find_said(self, world: World) -> str:
        lines = (world.folder / "pipelines" / "p.py").read_text().splitlines()
        marked = next((str(n) for n, line in enumerate(lines, 1) if line.endswith("# <-")), "")
        return self.said.replace("{line}", f"(p.py, line {marked})")


CASES = {
    "good": Case(rows=2),
    "good csv": Case(source="format='csv', options={'header': 'true'}", content="n,word\n1,x\n", name="1.csv", rows=1),
    "one bad of twenty": Case(content=JSON * 10 + '{"n": "x"}\n', rows=20, bad=1),
    "no row left": Case(body="def transform(df):\n    return df.where('n > 9')\n"),
    "typo": Case(
        'Cannot resolve dataframe column "amout". SQLSTATE: 42704 {line}',
        "def transform(df):\n    return df.withColumn('m', df.amout)  # <-\n",
    ),
    "function": Case(
        "ZeroDivisionError: division by zero {line}",
        "def transform(df):\n    def f(n):\n        return 1 / 0  # <-\n    return df.withColumn('m', F.udf(f)('n'))\n",
    ),
    "python": Case("KeyError: 'k' {line}", "def transform(df):\n    return df.limit({}['k'])  # <-\n"),
    "ids lost": Case("_partition", "def transform(df):\n    return df.select('n')\n"),
    "wrong ddl": Case("ITN", source="schema='n itn'"),
    "wrong format": Case("2 of 2 records of p:a are bad", content="n,word\n1,x\n", bad=2),
    "no parquet": Case("a/1.json", source="format='parquet'"),
    "no avro": Case("a/1.json is no Avro: it does not begin with Obj and 1", source="format='avro'"),
    "undeclared column": Case(
        "the CSV header of a/1.csv has the undeclared column 'Filiale'",
        source="format='csv', options={'header': 'true'}",
        content="n,word,Filiale\n1,x,y\n",
        name="1.csv",
    ),
}


def test_a_tryout_reports_what_a_run_does(tmp_path: Path, endpoint: str, spark: SparkSession) -> None:
    """Each pipeline is tried, and then consumed: both accept the same rows and bad records, or name the same error."""
    wrong: dict[str, object] = {}
    for name, case in CASES.items():
        world = World(tmp_path / name.replace(" ", "_"), endpoint, spark=spark)
        case.write(world)
        tried = try_file(world.folder / "pipelines" / "p.py", endpoint)
        (event,) = world.run("a") if world.give("a") else ()
        (one,) = tried.seen["partitions"]
        found = (tried.code, one["rows"], one["bad"])
        if isinstance(event, CommittedBatch):
            agrees = found == (0, event.rows, event.bad_rows) and not one["error"]
        else:
            assert isinstance(event, ParkedPartition)
            agrees = tried.code == 1 and event.reason.startswith(one["error"].rstrip("."))
        if not agrees or case.find_said(world) not in one["error"] or found[1:] != (case.rows, case.bad):
            wrong[name] = (found, one["error"], event)
        if case.bad and not (len(tried.seen["bad_records"]) == case.bad and tried.seen["bad_records"][0]["reason"]):
            wrong[f"{name}: bad records"] = tried.seen["bad_records"]
    assert wrong == {}


def test_a_tryout_shows_rows_and_columns_and_consumes_nothing(landed: World) -> None:
    """On a disk and in a bucket. A run would delete the files that it reads; a tryout does not."""
    landed.write("pipeline = Pipeline(source=source(after='delete'), table=delta({table!r}))\n")
    for key in "abcd":
        landed.rows(key, "00", 20)
    before = read_tree(landed.folder)
    tried = try_file(
        landed.folder / "pipelines" / "p.py", str(landed.endpoint), "--records", "3", "--key", "b", "--key", "d"
    )
    assert tried.code == 0
    assert [(one["partition"], one["rows"]) for one in tried.seen["partitions"]] == [("p:b", 20), ("p:d", 20)]
    assert [(row["_partition"], row["n"]) for row in tried.seen["rows"]] == [
        (f"p:{k}", n) for k in "bd" for n in range(3)
    ]
    assert tried.seen["columns"] == {"n": "int32", "word": "string", "_partition": "string", "_offset": "int64"}
    assert landed.get("b/00.json")
    assert read_tree(landed.folder) == before
    assert "Unknown key 'x'" in try_file(landed.folder / "pipelines" / "p.py", str(landed.endpoint), "--key", "x").error


def read_tree(folder: Path) -> Mapping[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_tryout_compares_with_the_columns_of_the_table(world: World) -> None:
    """Also for Parquet: a table with n as text refuses n as a number, in a tryout as in a run."""
    world.write("pipeline = Pipeline(source=source(format='parquet', schema='n string'), table=delta({table!r}))\n")
    write_parquet(world, "1.parquet", ["x"])
    world.give("a")
    assert isinstance(world.run("a")[0], CommittedBatch)
    before = read_tree(world.table)
    world.write("pipeline = Pipeline(source=source(format='parquet', schema='n long'), table=delta({table!r}))\n")
    Path(world.landing, "a", "1.parquet").unlink()
    write_parquet(world, "2.parquet", [1])
    tried = try_file(world.folder / "pipelines" / "p.py", str(world.endpoint))
    assert tried.code == 1
    assert "n" in tried.errors[0]
    assert "string" in tried.errors[0]
    assert read_tree(world.table) == before


def write_parquet(world: World, name: str, values: list[object]) -> None:
    file = Path(world.landing, "a", name)
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": values}), file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def transform(df:\n", "line 2"),
        ("x = 1\ny = undefined\n", "NameError: name 'undefined' is not defined (p.py, line 3)"),
        ("x = 1\n", "declares neither"),
        (
            "pipeline = Pipeline(source=files('/nowhere/at/all', format='csv', schema='n int'), table=delta('t'))\n",
            "not there",
        ),
        (
            "pipeline = Pipeline(source=files({land!r}, format='csv', schema='n int'), table=delta('t'))\n",
            "no partition yet",
        ),
    ],
)
def test_what_cannot_be_tried_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "land").mkdir()
    file = tmp_path / "p.py"
    file.write_text(
        "from rota import Pipeline, delta, files\n" + text.replace("{land!r}", repr(str(tmp_path / "land")))
    )
    tried = try_file(file, "sc://127.0.0.1:1")
    assert tried.code == 2
    assert said in tried.error
    assert len(tried.error.splitlines()) == 1
    assert "There is no file" in try_file(tmp_path / "none.py", "sc://127.0.0.1:1").error


def test_a_folder_without_files_is_nothing_to_read(world: World) -> None:
    Path(world.landing, "a").mkdir(parents=True)
    tried = try_file(world.folder / "pipelines" / "p.py", str(world.endpoint))
    assert (tried.code, tried.errors) == (1, [])
    assert [(one["start"], one["end"]) for one in tried.seen["partitions"]] == [(0, 0)]


def test_without_its_own_folder_a_tryout_writes_into_the_table(world: World) -> None:
    """Ablation: with the pipeline's own ports the same code makes the table and assigns offsets."""
    world.rows("a", "00", 2)
    ports, lenient = open_tryout(world.pipeline, str(world.folder / "apart"), 1, 1, world.connect)
    assert try_out(ports, lenient, ["p:a"], str(world.endpoint), None, 1).works
    assert not world.table.exists()
    own = open_ports(world.pipeline, "g", "try", world.connect)
    assert try_out(own, own.job, ["p:a"], str(world.endpoint), None, 1).works
    assert (world.table / "main").exists()
    assert (world.table / "index").exists()
