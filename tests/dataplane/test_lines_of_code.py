"""An error of a transform names the file and the line of the user's code, wherever Spark detects it."""

import json
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import DataFrame, SparkSession

from rota.dataplane.spark import failures, places
from rota.dataplane.spark.failures import judge_failure
from rota.dataplane.spark.session import send_by_value
from rota.errors import BadTransform

# Each function is a transform with one fault; `# <-` marks the line that its error names.
FAULTY = """
import json
from decimal import Decimal

from pyspark.sql import functions as F

import beside


def attribute(df):
    return df.select("_partition",
        df.amout)  # <- Cannot resolve dataframe column "amout"


def item(df):
    return df.where(df["prise"] > 1)  # <- Cannot resolve dataframe column "prise"


def column(df):
    kept = df.withColumn("x", F.lit(1))
    return kept.withColumn("y", F.col("amont") + 1)  # <- with name `amont` cannot be resolved


def text(df):
    return df.selectExpr("*", "colr * 2 as more")  # <- with name `colr` cannot be resolved


def selected(df):
    return df.select("_partition", "nme")  # <- with name `nme` cannot be resolved


def division(df):
    return df.withColumn("x", F.col("n") / F.lit(0))  # <- DIVIDE_BY_ZERO


def function(df):
    def halve(n):
        return 1 / (n - n)  # <- ZeroDivisionError: division by zero

    return df.withColumn("x", F.udf(halve, "double")("n"))


def library(df):
    return df.withColumn("x", F.udf(lambda n: json.loads("{")["a"], "string")("n"))  # <- JSONDecodeError


def pandas(df):
    @F.pandas_udf("long")
    def add(numbers):
        return numbers.nothing  # <- AttributeError

    return df.withColumn("x", add("n"))


def helper(df):
    return beside.fail(df)


def call(df):
    return df.nothing(1)  # <- TypeError: 'Column' object is not callable


def python(df):
    return df.withColumn("x", F.lit({}["key"]))  # <- KeyError: 'key'
"""
BESIDE = """
def fail(df):
    raise ValueError("no such shop")  # <- ValueError: no such shop
"""
NAMES = (
    "attribute", "item", "column", "text", "selected", "division", "function", "library", "pandas", "helper",
    "call", "python",
)  # fmt: skip


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Write a pipeline file with these transforms, and a module of the user beside it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "faulty.py").write_text(FAULTY)
    spec = spec_from_file_location("rota_pipelines_faulty", tmp_path / "faulty.py")
    assert spec
    assert spec.loader
    loaded = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, loaded.__name__, loaded)
    spec.loader.exec_module(loaded)
    monkeypatch.delitem(sys.modules, "beside")
    send_by_value(loaded)
    return loaded


def find_marked(text: str, after: str) -> tuple[int, str]:
    """Return the first marked line after the line that begins so, and the text of its error."""
    lines = text.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(after))
    return next((n + 1, line.partition("# <- ")[2]) for n, line in enumerate(lines) if n > begin and "# <- " in line)


def judge(spark: SparkSession, module: ModuleType, transform: Callable[[DataFrame], DataFrame]) -> str:
    """Return the error line of a run whose transform fails."""
    frame = spark.createDataFrame([("p:a", 0, 1)], "_partition string, _offset bigint, n int")
    try:
        transform(frame).collect()
    except Exception as error:
        judged = judge_failure(error, spark, "p:a", module=module)
        assert isinstance(judged, BadTransform)
        return str(judged)
    raise AssertionError("it did not fail")


def test_each_fault_names_its_line(spark: SparkSession, module: ModuleType) -> None:
    wrong = {}
    for name in NAMES:
        file, text, after = (
            ("beside.py", BESIDE, "def fail") if name == "helper" else ("faulty.py", FAULTY, f"def {name}(")
        )
        line, said = find_marked(text, after)
        found = judge(spark, module, getattr(module, name))
        if f"({file}, line {line})" not in found or said not in found or "illegal references" in found:
            wrong[name] = f"{found} # line {line}, {said}"
    assert wrong == {}, json.dumps(wrong, indent=1)


def test_without_the_places_no_fault_names_a_line(
    spark: SparkSession, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ablation: Spark's own message names no line of the user."""
    monkeypatch.setattr(failures, "find_place", lambda *_: "")
    found = [judge(spark, module, getattr(module, name)) for name in ("attribute", "column", "function", "python")]
    assert not any(", line " in one for one in found)


def test_without_the_folder_a_line_of_a_library_is_named(
    spark: SparkSession, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ablation: if every file counts as the user's, the innermost frame is in the decoder of json."""
    monkeypatch.setattr(module, "__file__", "/faulty.py")
    assert "json/decoder.py, line" in judge(spark, module, module.library)


def test_a_column_that_many_lines_name_has_no_line(tmp_path: Path) -> None:
    class Unresolved(Exception):
        def getMessageParameters(self) -> dict[str, str]:
            return {"name": '"amount"'}

    module = ModuleType("many")
    file = tmp_path / "many.py"
    module.__file__ = str(file)
    found = {}
    for count in range(6):
        file.write_text("df.amount\n" * count)
        found[count] = places.find_place(Unresolved(), module)
    assert found == {
        0: "", 1: "many.py, line 1", 2: "many.py, line 1 or 2", 3: "many.py, line 1 or 2 or 3", 4: "", 5: "",
    }  # fmt: skip
    file.write_text("def (:")
    assert not places.find_place(Unresolved(), module)
    assert not places.find_place(Unresolved(), None)
