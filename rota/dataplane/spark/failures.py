"""Whose fault a failed job is.

Law: an error of the environment (Spark gone, cancelled, disk, memory, a lost executor) ends the run and parks nobody; any
other is of the data or of the transform, is bisected, and parks whom it can be pinned on. In doubt, Spark is asked for a
trivial query: if even that finds no slot, it was the environment. What a message quotes is data, and says nothing of whose
fault.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from rota.dataplane.spark.deadline import limit
from rota.dataplane.spark.session import take_first_line
from rota.dataplane.spark.words import ANALYSIS, ENVIRONMENT, WRAPPED
from rota.errors import BadTransform, EnvironmentFailed, RotaError
from rota.ids import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUOTED = re.compile(r"(?<!\w)(['\"]).*?\1(?!\w)")
CAUSE = re.compile(
    r"^\s*(?:Caused by: )?([\w.$]*(?:Error|Exception)): (.+(?:\n(?!\s+at |Caused by| SQLSTATE).+){0,5})", re.M
)
SLOT = 60.0  # seconds in which a Spark that is busy with others must find a slot for a trivial task
RETRY = "rota retry"  # of a failure of several partitions


def judge_failure(
    error: BaseException,
    spark: "SparkSession",
    partition: str | None,
    told: Callable[[str], str] = str,
    place: str = "",
) -> RotaError:
    """What a failed job means; `partition` is the only one that the job held, if it held only one, and `place` says where
    it read. `told` makes the error's text readable."""
    if isinstance(error, RotaError):
        return error
    text, cause = f"{type(error).__name__}: {error}", told(explain_cause(error)).rstrip(" ;.")
    if (
        ENVIRONMENT.search(QUOTED.sub("", text))
        or isinstance(error, MemoryError | ConnectionError)
        or not is_alive(spark)
    ):
        return EnvironmentFailed(
            f"Spark failed ({cause}). No partition is parked; the next run tries again", why=cause + place
        )
    step = f"rota retry {quote(partition)}" if partition else RETRY
    final = type(error).__name__ in ANALYSIS
    mend = "the schema or the transform" if final else "the transform or the data"
    what = f"{cause}{place}. Mend {mend}, then: "
    return BadTransform(what, step=step, partition=partition, person=final)


def explain_cause(error: BaseException) -> str:
    """The cause in one line: the innermost error that says something, such as what a user's function raised."""
    text = str(error)
    causes = [(kind, said) for kind, said in CAUSE.findall(text) if kind.rsplit(".", 1)[-1] not in WRAPPED]
    if causes:
        kind, said = causes[-1]
        return f"{kind.rsplit('.', 1)[-1]}: {' '.join(said.split())[:300]}"
    return f"{type(error).__name__}: {take_first_line(error)}"


def is_alive(spark: "SparkSession") -> bool:
    """Whether a trivial task found a slot within `SLOT` seconds."""
    try:
        with limit(spark, SLOT):
            return bool(spark.range(1).count() == 1)
    except Exception:  # whatever it is, Spark does not work
        return False
