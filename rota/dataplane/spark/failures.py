"""Decide whether the environment, the data or the transform made a job fail.

Law: an error of the environment (Spark gone, cancelled, disk, memory, a lost executor) ends the run and parks no partition.
Any other error is one of the data or of the transform: the job is bisected, and the partitions at fault are parked. In
doubt, Spark runs a trivial query; if even this query finds no slot, the environment failed. Quoted text in a message is
data and decides nothing. An executor's Python that differs from the run's (version, missing module) is an error of the
environment, too.
"""

import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from rota.dataplane.spark.deadline import limit
from rota.dataplane.spark.places import find_place
from rota.dataplane.spark.session import take_first_line
from rota.dataplane.spark.words import ANALYSIS, ENVIRONMENT, GUESS, MODULE, NO_JARS, PYTHON, UNEXPLAINED, WRAPPED
from rota.errors import BadTransform, EnvironmentFailed, RotaError
from rota.ids import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUOTED = re.compile(r"(?<!\w)(['\"]).*?\1(?!\w)")
CAUSE = re.compile(
    r"^\s*(?:Caused by: )?([\w.$]*(?:Error|Exception)): (.+(?:\n(?!\s+at |Caused by| SQLSTATE).+){0,5})", re.M
)
NAMES = re.compile(r"^\s*Expected: (.*?) but found: (.*)$", re.M)  # of a CSV header
LONGEST = 500  # characters of a cause
SLOT = 60.0  # seconds in which a Spark that is busy with others must find a slot for a trivial task


def judge_failure(
    error: BaseException,
    spark: "SparkSession",
    partition: str | None,
    translate: Callable[[str], str] = str,
    place: str = "",
    module: ModuleType | None = None,
) -> RotaError:
    """Decide what a failed job means.

    Args:
        error: what the job raised.
        spark: the session that ran the job; in doubt, it runs a trivial query.
        partition: the partition of the job, if the job held only one.
        translate: makes the error's text readable.
        place: the offsets that the job read.
        module: the pipeline's module; the error names its line.

    Returns:
        EnvironmentFailed, or BadTransform for a fault of the data or of the transform; `error` itself if it is rota's own.
    """
    if isinstance(error, RotaError):
        return error
    text, cause = f"{type(error).__name__}: {error}", explain_cause(error, translate).rstrip(" ;.")
    if NO_JARS in text:
        return EnvironmentFailed(
            f"Spark has no jars to read a bucket ({cause}). No partition is parked. On the worker's machine: rota prepare "
            f"--s3; then start the worker again",
            why=cause + place,
        )
    surely = ENVIRONMENT.search(QUOTED.sub("", text))
    mend = explain_python(text) if surely or MODULE.search(text) else ""
    if mend or surely or isinstance(error, MemoryError | ConnectionError) or not is_alive(spark):
        what = mend or f"Spark failed ({cause})"
        return EnvironmentFailed(f"{what}. No partition is parked; the next run tries again", why=cause + place)
    final = type(error).__name__ in ANALYSIS
    line = f" ({found})" if (found := find_place(error, module)) else ""
    return BadTransform(f"{cause}{line}{place}", step=name_step(final, partition), partition=partition, person=final)


def name_step(final: bool, partition: str | None) -> str:
    """Return the next step for a failed transform. `final`: Spark refused it, or the schema, before it read a row.
    `partition`: None if several partitions failed."""
    mend = "the schema or the transform" if final else "the transform or the data"
    return f"Mend {mend}, then: rota retry{f' {quote(partition)}' if partition else ''}"


def explain_cause(error: BaseException, translate: Callable[[str], str] = str) -> str:
    """Return the cause in one line: the innermost error that is no wrapper, such as one that a user's function raised.
    `translate` makes the text readable before it is cut: a name in it may be long."""
    text = str(error)
    if UNEXPLAINED in text:  # only the server's stack has its causes
        text += f"\n{getattr(error, 'getStackTrace', str)() or ''}"
    causes = [(kind, said) for kind, said in CAUSE.findall(text) if kind.rsplit(".", 1)[-1] not in WRAPPED]
    if causes:
        kind, said = causes[-1]
        said = NAMES.sub(r"Expected: '\1' but found: '\2'", said)  # names may differ in blanks, which are merged below
        return f"{kind.rsplit('.', 1)[-1]}: {translate(' '.join(said.split()))[:LONGEST]}"
    return translate(f"{type(error).__name__}: {GUESS.sub('', take_first_line(error))}")


def explain_python(text: str) -> str:
    """Return how the executors' Python differs from this one, with the next step; empty for any other error."""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if found := PYTHON.search(text):
        said = found[0].rstrip(" .")
        return (
            f"The executors of Spark have not the Python that runs use ({said}). Give the worker PYSPARK_PYTHON, the path "
            f"of a Python {ours} with pandas and pyarrow on each machine of its Spark, and start it again"
        )
    lacks = MODULE.findall(text)
    if not lacks or not _is_here(lacks[-1].partition(".")[0]):
        return ""
    return (
        f"The Python of Spark's executors has no module {lacks[-1]!r}, which is here. Install it there; or, if it is your "
        f"own, put it beside the pipeline's file and import it where the transform begins or above, not in a function "
        f"that Spark calls"
    )


def _is_here(module: str) -> bool:
    try:
        return module in sys.modules or find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def is_alive(spark: "SparkSession") -> bool:
    """Whether a trivial task found a slot within `SLOT` seconds."""
    try:
        with limit(spark, SLOT):
            return bool(spark.range(1).count() == 1)
    except Exception:  # with any error, Spark does not work
        return False
