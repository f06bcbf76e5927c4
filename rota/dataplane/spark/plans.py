"""What Spark's plan of a result says of the rows that go through it.

Law: what a function here affirms is so for every input. What it does not know, it denies. It reads the plan that Spark's own
analyzer and optimizer made, so that a function that makes several rows of one, or one of several, stands there as a step of
its own (Generate, Aggregate, Window), also where the transform has it as text.

A plan is the text that `DataFrame.explain(mode="extended")` prints: a step a line, each below the one that it feeds. Nothing
in it quotes the texts of a transform, which may have lines of their own, also such as look like a step. So the result is
explained below `DEPTH` steps of ours: a step of it stands behind as many levels, and any other line is the rest of the one
above it.

The text was seen on Spark 4.3; `tests/dataplane/test_plans.py` fails where it is another. What it saves: a job that copies
2,000,000 rows of Parquet and adds a column takes 0.72 CPU seconds, and 0.98 where each row is observed (1,000,000 without a
transform: 1 to 6 %); a job whose counts nobody could trust would read its text once more; 10,000,000 rows of a bucket that
go row by row take 3.0, and 3.9 where each row is looked up. It goes where that is less than a tenth of a job.
"""

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ANALYZED, OPTIMIZED, PHYSICAL = (
    f"== {name} Plan ==\n" for name in ("Analyzed Logical", "Optimized Logical", "Physical")
)
TOP, DEPTH = "SubqueryAlias rota_top", 12  # our steps above the result, and how many of them
STEP = re.compile(rf"(?:[ :]  ){{{DEPTH - 1},}}[:+]- \w")  # how a step of the result begins below them
ONE_FOR_ONE = re.compile(r"\s*(?:\+- )?(?:Project \[|SubqueryAlias )")  # the only input of the step above, or the first
TO_THE_END = re.compile(
    r"[\s:+-]*(Relation|CollectMetrics|Project|Filter|Generate|BatchEvalPython|ArrowEvalPython) "
)  # steps that read their input to its end, once
ROW_BY_ROW = re.compile(
    r"[\s:+-]*(Relation|CollectMetrics|Project|Filter|SubqueryAlias) "
)  # steps that give a row before they take the next
MADE = re.compile(r"MapInArrow read_topic\(.*\n[\s:+-]*Range .*")  # a source's own function, which makes what is read
PYTHON = re.compile(r"Python|Pandas|Arrow")


def explain(result: "DataFrame") -> str:
    """The plan of a result. Nothing is computed."""
    for _ in range(DEPTH):
        result = result.alias(TOP.split()[1])
    if explained := getattr(result, "_explain_string", None):
        return str(explained(mode="extended"))
    queries: Any = result  # of a session of this process
    return str(queries._sc._jvm.PythonSQLUtils.explainString(queries._jdf.queryExecution(), "extended"))


def read_steps(plan: str) -> list[str]:
    """The steps of the analyzed plan of a result, a line each; empty where there is none."""
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
    """Whether the result has one row for each row of the frame with the alias `mark`, which is no other's, and no more."""
    steps = read_steps(plan)
    above = list(takewhile(lambda step: not re.fullmatch(rf"\s*(?:\+- )?SubqueryAlias {mark}", step), steps))
    return len(above) < len(steps) and all(map(ONE_FOR_ONE.match, above))


def calls_python(plan: str) -> bool:
    """Whether a step of the result calls Python."""
    optimized = MADE.sub("", _take_optimized(plan))
    return not optimized or PYTHON.search(optimized) is not None


def goes_row_by_row(plan: str) -> bool:
    """Whether each row of the result is there while the record of which it was made is the last one read of its relation:
    what Spark says of that moment (`input_file_name`) is said of the row. Nothing is kept, sorted or sent elsewhere, and
    Spark does not refuse to say it, as it does of several relations, also where it drops the others later."""
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
