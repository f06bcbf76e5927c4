"""Derive from Spark's plan of a result how rows pass through it.

Law: an answer that saves work is right for every input; in doubt, a function returns the other answer (`calls_python`:
True). Each function reads the plan of Spark's analyzer and optimizer. There, a function that makes several rows of one, or
one of several, is a step of its own (Generate, Aggregate, Window), also if the transform writes it as text.

A plan is the text that `DataFrame.explain(mode="extended")` prints: a step a line, each below the step that it feeds. Spark
does not escape the texts of a transform: a text may have several lines, and a line may resemble a step. So `explain` adds
`DEPTH` steps above the result. A line is a step of the result only if it is indented by that many levels; any other line
continues the line above it.

The format is that of Spark 4.3; `tests/dataplane/test_plans.py` fails if it changes. Savings: a job that copies 2,000,000
rows of Parquet and adds a column takes 0.72 CPU seconds, and 0.98 if each row is observed (1,000,000 without a transform: 1
to 6 % less). A job without reliable counts reads its text twice. 10,000,000 rows of a bucket that go row by row take 3.0
CPU seconds, and 3.9 if each row is looked up. Remove an answer that saves less than a tenth of a job.
"""

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ANALYZED, OPTIMIZED, PHYSICAL = (
    f"== {name} Plan ==\n" for name in ("Analyzed Logical", "Optimized Logical", "Physical")
)
TOP, DEPTH = "SubqueryAlias rota_top", 12  # the steps that are added above the result, and their number
STEP = re.compile(rf"(?:[ :]  ){{{DEPTH - 1},}}[:+]- \w")  # the beginning of a step of the result below them
ONE_FOR_ONE = re.compile(r"\s*(?:\+- )?(?:Project \[|SubqueryAlias )")  # the only input of the step above, or the top
TO_THE_END = re.compile(
    r"[\s:+-]*(Relation|CollectMetrics|Project|Filter|Generate|BatchEvalPython|ArrowEvalPython) "
)  # steps that read their input to its end, once
ROW_BY_ROW = re.compile(
    r"[\s:+-]*(Relation|CollectMetrics|Project|Filter|SubqueryAlias) "
)  # steps that output a row before they read the next
# A source's own function, which reads the records.
MADE = re.compile(r"MapInArrow read_(?:topic|avro)\(.*\n[\s:+-]*Range .*")
SPLITS = re.compile(r"Range \(.*splits=(?:Some\()?(\d+)")
PYTHON = re.compile(r"Python|Pandas|Arrow")


def explain(result: "DataFrame") -> str:
    """Return the plan of a result. Nothing is computed."""
    for _ in range(DEPTH):
        result = result.alias(TOP.split()[1])
    if explained := getattr(result, "_explain_string", None):
        return str(explained(mode="extended"))
    queries: Any = result  # of a session of this process
    return str(queries._sc._jvm.PythonSQLUtils.explainString(queries._jdf.queryExecution(), "extended"))


def count_slots(spark: "SparkSession") -> int:
    """Return the number of tasks into which Spark divides a range; 1 if the plan does not show it."""
    found = SPLITS.search(explain(spark.range(1)))
    return int(found[1]) if found else 1


def read_steps(plan: str) -> list[str]:
    """Return the steps of the analyzed plan of a result, a line each; empty if there is none."""
    lines = plan.partition(ANALYZED)[2].partition(f"\n\n{OPTIMIZED}")[0].split("\n")
    below = lines[lines.index(TOP) + 1 :] if TOP in lines else []  # before it are the names of the columns
    steps: list[str] = []
    for line in below:
        if STEP.match(line):
            steps.append(line[3 * DEPTH :])
        elif steps:
            steps[-1] += f" {line}"
    return steps


def keeps_each_row(plan: str, mark: str) -> bool:
    """Whether the result has exactly one row for each row of the frame that alone has the alias `mark`."""
    steps = read_steps(plan)
    above = list(takewhile(lambda step: not re.fullmatch(rf"\s*(?:\+- )?SubqueryAlias {mark}", step), steps))
    return len(above) < len(steps) and all(map(ONE_FOR_ONE.match, above))


def calls_python(plan: str) -> bool:
    """Whether a step of the result calls Python."""
    optimized = MADE.sub("", _take_optimized(plan))
    return not optimized or PYTHON.search(optimized) is not None


def goes_row_by_row(plan: str) -> bool:
    """Whether Spark outputs each row of the result before it reads the next record: then `input_file_name` is the file of
    the row. No step may keep, sort or exchange rows. The result must read one relation: Spark refuses `input_file_name`
    over several, even if the optimizer drops all but one."""
    return all(_has_one_relation(of, ROW_BY_ROW) for of in (read_steps(plan), _take_optimized(plan).splitlines()))


def reads_to_the_end(plan: str, observed: Iterable[str]) -> bool:
    """Whether the result reads one relation alone, once and to its end, through these observations."""
    lines = MADE.sub("Relation made", _take_optimized(plan)).splitlines()
    return _has_one_relation(lines, TO_THE_END) and all(
        any(f"CollectMetrics {n}," in line for line in lines) for n in observed
    )


def _has_one_relation(lines: Iterable[str], known: re.Pattern[str]) -> bool:
    """Whether all steps are known, and one of them is a relation."""
    steps = [known.match(line) for line in lines]
    return all(steps) and sum(1 for step in steps if step and step[1] == "Relation") == 1


def _take_optimized(plan: str) -> str:
    return plan.partition(OPTIMIZED)[2].partition(f"\n\n{PHYSICAL.strip()}")[0]
