"""Which records are bad: one verdict a record, by one parse of the whole declared schema; and how many there were.

Law: a record is good if and only if every declared column of it parses, whatever the transform uses of it and whatever
Spark leaves out because of that. What Spark need not read it does not parse, and a value that nobody parses is never bad:
so every frame that tells good from bad is observed right above the reader, by an expression that needs every declared
column, and no filter goes below it.

Law: counted, not believed. Records read are those handed to the transform and the bad ones; rows that went into a write are
those that its files hold. Where they are not, nothing is committed, and it is tried again (EnvironmentFailed).

What parses is Spark's PERMISSIVE verdict under the options of the source. A record is a line (with `multiLine` CSV's
quoted lines, and JSON's first value of the file); a blank line is none, and an array of JSON objects is as many as it has.

| type | bad in JSON | bad in CSV |
|---|---|---|
| record | no object; one bad element of an array makes all bad | more or fewer fields than columns |
| short, int, long | a string, a fraction, an exponent, out of range | the same, a space; byte too |
| float, double | a string but NaN, Infinity, INF with a sign | not Java's number, NaN or Inf |
| decimal | no number, in quotes or not; more digits before the point than declared | the same |
| boolean | not true, false | not true, false in any case |
| string | never: numbers and objects are kept as text | never: what is no UTF-8 is replaced |
| date | not as CAST reads it | not yyyy-MM-dd, or `dateFormat` |
| timestamp | not as CAST reads it, nor whole seconds since 1970 | not as CAST reads it, or `timestampFormat` |
| timestamp_ntz | the same, or with a zone; a number | the same, or with a zone |
| binary | no base64 | never |
| array, map, struct | another kind of value, or one bad value inside | cannot be declared |

Any value may be null or, in JSON, missing; an empty field of CSV is null. What Spark rounds is good: digits behind the
point of a decimal, a float beyond its range (Infinity), nanoseconds. Of a line of JSON Spark reads the first value alone:
`{"n": 1}{"n": 2}` stops its partition (see `lines`). Known and not mended: a time without a day gets the day on which it is
read, seconds beyond the range of a timestamp wrap, a decimal "1,5" is 15 (`locale`). JSON has no `tinyint`: Spark takes 200
for -56.
"""

import io
import re
import uuid
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.dataplane.spark.spark_source import CORRUPT
from rota.errors import EnvironmentFailed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

RECORDS, BAD, ROWS = "records", "bad", "rows"
ROW_BY_ROW = re.compile(
    r"[\s:+-]*(Relation|CollectMetrics|Project|Filter|Generate|BatchEvalPython|ArrowEvalPython) "
)  # steps of a plan that read their input to its end, once


@dataclass(frozen=True, slots=True)
class Tally:
    """Records of a job, and how many of them were bad."""

    records: int
    bad: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """The records of a reader's frame: `good` are those that parse, without `_corrupt`; `frame` has all of them."""

    frame: "DataFrame"
    good: "DataFrame"
    seen: "Observation"
    handed: "Observation | None"  # None where no record can be bad: what was read is what was handed on

    def sure(self, result: "DataFrame") -> bool:
        """Whether a job that writes `result`, the transform's, reads each record once and so counts it: not where a limit, a
        join or a filter that nothing passes lets Spark leave some out, nor after an action inside the transform."""
        names = [one._name for one in (self.seen, self.handed) if one]
        return _row_by_row(result, names) and not _told(self.seen)

    def tally(self) -> Tally | None:
        """What such a job counted; None where Spark did not say. Raises EnvironmentFailed where its counts do not fit."""
        seen = read_counts(self.seen)
        if RECORDS not in seen:
            return None
        tally = Tally(seen[RECORDS], seen.get(BAD, 0))
        if self.handed is None:
            return tally
        handed = read_counts(self.handed)
        if ROWS not in handed:
            return None
        require_same(tally.records, handed[ROWS] + tally.bad, "records that Spark read", "it handed on or found bad")
        return tally


def parse(frame: "DataFrame") -> Parsed:
    """The frame, watched; it may have no `_corrupt`, and then none of its records is bad by itself."""
    from pyspark.sql import functions as F  # noqa: N812

    seen = _observation()
    records = F.count(F.lit(1)).alias(RECORDS)
    if CORRUPT not in frame.columns:
        frame = frame.observe(seen, records)
        return Parsed(frame, frame, seen, None)
    frame = frame.observe(seen, records, F.count(mark_whole(frame)).alias(BAD))
    good, handed = count_rows(frame.where(frame[CORRUPT].isNull()).drop(CORRUPT))
    return Parsed(frame, good, seen, handed)


def mark_whole(frame: "DataFrame") -> "Column":
    """Every declared column of a bad record, null for a good one. Built for the bad ones alone, and so nearly for nothing;
    whoever counts it makes Spark parse them all."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = [frame[f"`{name.replace('`', '``')}`"] for name in frame.columns if name != CORRUPT]
    return F.when(frame[CORRUPT].isNotNull(), F.struct(*columns))


def count_rows(frame: "DataFrame") -> "tuple[DataFrame, Observation]":
    """The frame, and what tells how many rows of it went by."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = _observation()
    return frame.observe(rows, F.count(F.lit(1)).alias(ROWS)), rows


def read_counts(observation: "Observation") -> dict[str, int]:
    """What Spark counted in a job that read the observed frame."""
    return {name: int(value) for name, value in observation.get.items()}


def require_same(one: int, other: int, what: str, than: str) -> None:
    """Raises EnvironmentFailed where two counts of the same differ."""
    if one != other:
        why = f"{one} {what}, {other} that {than}"
        raise EnvironmentFailed(
            f"The counts of a job differ: {why}. Nothing of it was committed; it is tried again. If it comes back: is the "
            f"folder of the table on one disk for Spark and for this run?",
            why=why,
        )


def _observation() -> "Observation":
    from pyspark.sql import Observation

    return Observation(f"rota-{uuid.uuid4()}")


def _told(observation: "Observation") -> bool:
    """Whether an action has told already."""
    classic = getattr(observation, "_jo", None)
    return bool(classic.future().isCompleted()) if classic is not None else bool(observation.get)


def _row_by_row(result: "DataFrame", names: list[str]) -> bool:
    """Whether the plan reads one relation, ours, once and to its end."""
    with redirect_stdout(io.StringIO()) as out:
        result.explain(mode="extended")
    plan = out.getvalue().partition("== Optimized Logical Plan ==\n")[2].partition("\n\n== Physical Plan ==")[0]
    steps = [ROW_BY_ROW.match(line) for line in plan.splitlines()]
    relations = sum(1 for step in steps if step and step[1] == "Relation")
    return all(steps) and relations == 1 and all(f"CollectMetrics {name}," in plan for name in names)
