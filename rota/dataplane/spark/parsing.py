"""Which records are bad, by one parse of the whole declared schema, and how many records there were.

Law: a record is good if and only if each of its declared columns parses, even if the transform does not use the column.
Spark does not parse columns that it need not read, and an unparsed value is never bad. Therefore every frame that separates
good from bad records is observed directly above the reader, by an expression that needs every declared column, and no
filter moves below the observation.

Law: counts must match. The records read are the records passed to the transform plus the bad ones. The rows of a write are
the rows that its files hold. If the counts differ, nothing is committed, and the run retries (EnvironmentFailed).
Observations count the rows. Each observation above another step costs a job that only copies rows 5 to 10 %. A transform
whose plan keeps each row (see `plans`) needs none: its files hold the records of the source, except the bad ones. The
observation directly above the reader costs a CSV job 8 %. If there is no transform and the reader drops bad records, it is
left out, too: every column is written and therefore parsed, and the good records are the rows of the files.

Law: Spark's reader may drop bad records instead of marking them, because marking costs an eighth of a CSV job. It does so
if the source counted an upper bound of the records (`Records.most`): as many good records prove that none was bad. If
there are fewer, the job reads all records again with marks, and the number of good ones must be the same.

Spark's PERMISSIVE mode under the options of the source decides what parses. A record is a line (with `multiLine`, CSV's
quoted lines, or the first JSON value of the file). A blank line is no record, and an array of JSON objects is one record
for each object.

| type | bad in JSON | bad in CSV |
|---|---|---|
| record | no object; one bad element of an array makes all bad | more or fewer fields than columns |
| short, int, long | a string, a fraction, an exponent, out of range | the same, a space; byte too |
| float, double | a string but NaN, Infinity, INF with a sign | not Java's number, NaN or Inf |
| decimal | no number, in quotes or not; more digits before the point than declared | the same |
| boolean | not true, false | not true, false in any case |
| string | never: numbers and objects are kept as text | never |
| date | not as CAST reads it | not yyyy-MM-dd, or `dateFormat` |
| timestamp | not as CAST reads it, nor whole seconds since 1970 | not as CAST reads it, or `timestampFormat` |
| timestamp_ntz | the same, or with a zone; a number | the same, or with a zone |
| binary | no base64 | never |
| array, map, struct | another kind of value, or one bad value inside | cannot be declared |

Any value may be null or, in JSON, missing; an empty CSV field is null. A value that Spark rounds is good: digits after the
point of a decimal, a float beyond its range (Infinity), nanoseconds. A text whose meaning Spark's parsers would guess is
bad: see `values`. Known limits: a time without a date gets the day on which it is read, seconds beyond the range of a
timestamp wrap, and a decimal "1,5" is 15 (`locale`). JSON has no `tinyint`, because Spark reads 200 as -56. If the
separator has several characters and a record ends with empty fields after a quoted one, the last field is an empty text and
not null, which makes a number bad. The same can happen to a record of separators only, after a record that ends in a quoted
field.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rota.dataplane import columns
from rota.dataplane.spark import plans
from rota.errors import EnvironmentFailed
from rota.record import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

Identify = Callable[["DataFrame"], "DataFrame"]
RECORDS, BAD, ROWS, EMPTY = "records", "bad", "rows", "empty"


@dataclass(frozen=True, slots=True)
class Tally:
    """Records of a job, and how many of them were bad."""

    records: int
    bad: int

    def require_good(self, rows: int) -> None:
        """Raise EnvironmentFailed unless there is one row for each good record."""
        require_same(self.records, rows + self.bad, "records to read", "were written or found bad")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The records of a reader's frame.

    Attributes:
        frame: all records.
        good: the records that parse, without `_corrupt`, under the alias `mark`.
        seen: counts the records; None if they are not observed.
        handed: counts the good records; None if they are not observed.
    """

    frame: "DataFrame"
    good: "DataFrame"
    mark: str
    seen: "Observation | None"
    handed: "Observation | None" = None

    def keeps_each_row(self, plan: str) -> bool:
        """Return whether the result has one row for each good record, and `seen` counts the job that writes it.

        An action inside the transform would be counted instead of the job. `plan` is the plan of the result, empty without a
        transform.
        """
        same = not plan or plans.keeps_each_row(plan, self.mark)
        return same and not (self.seen and _has_counted(self.seen))

    def is_read_once(self, plan: str) -> bool:
        """Return whether a job that writes the result of this plan reads, and so counts, each record once.

        It does not if a limit, a join or a filter lets Spark skip records, or after an action inside the transform.
        """
        watched = [one for one in (self.seen, self.handed) if one]
        read = plans.reads_to_the_end(plan, [one._name for one in watched])
        return read and not (self.seen and _has_counted(self.seen))

    def tally(self) -> Tally | None:
        """Return the counts of such a job; None if Spark reported none. Raises EnvironmentFailed if they do not match."""
        seen = read_counts(self.seen) if self.seen else {}
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


def parse(
    frame: "DataFrame", corruptible: bool, identify: Identify = columns.keep_ids, *, counted: bool = False
) -> Parsed:
    """Separate the good records of a frame, and count its bad ones.

    Args:
        frame: the reader's frame.
        corruptible: the source can have bad records. Otherwise they are not counted, and a column `_corrupt` is the user's.
        identify: see `Records`. It adds one step to the plan, whose columns `origins` reads.
        counted: the good records are written unchanged, and are counted there.
    """
    from pyspark.sql import functions as F  # noqa: N812

    mark = f"rota_{uuid.uuid4().hex}"  # of letters that no plan quotes
    seen, marked = None, corruptible and is_marked(frame)  # Spark is asked for the columns of each frame anew
    if corruptible and not counted:
        frame, seen = count_records(frame)
    frame = identify(frame)
    good = frame.where(F.col(CORRUPT).isNull()).drop(CORRUPT) if marked else frame
    return Parsed(frame, good.alias(mark), mark, seen)


def watch(frame: "DataFrame", corruptible: bool, identify: Identify = columns.keep_ids) -> Parsed:
    """Do as `parse`, and count the records that the transform receives, too."""
    parsed = parse(frame, corruptible, identify)
    if parsed.seen:
        good, handed = count_rows(parsed.good)
        return replace(parsed, good=good, handed=handed)
    good, seen = count_rows(parsed.good, RECORDS)  # none is bad: what is handed on is what was read
    return replace(parsed, good=good, seen=seen)


def count_records(frame: "DataFrame") -> "tuple[DataFrame, Observation]":
    """Return the frame, and an observation of the number of its records and of the bad ones.

    Directly above the reader it costs Spark almost nothing; above another step it would make Spark copy each row.
    """
    from pyspark.sql import functions as F  # noqa: N812

    marked = F.count(mark_whole(frame)).alias(BAD if is_marked(frame) else EMPTY)
    return observe(frame, F.count(F.lit(1)).alias(RECORDS), marked)


def is_marked(frame: "DataFrame") -> bool:
    """Return whether the frame has the bad records, marked by `_corrupt`; otherwise the reader dropped them."""
    return CORRUPT in frame.columns


def mark_whole(frame: "DataFrame") -> "Column":
    """Every declared column of a bad record, null for a good one; without bad ones, of a record whose first column is null.
    Built for few, and so nearly for nothing; a count of it makes Spark parse them all. The columns are named without their
    frame: of thousands that name it, Spark looks each up among all."""
    from pyspark.sql import functions as F  # noqa: N812

    whole = [columns.quote_name(name) for name in frame.columns if name != CORRUPT]
    few = F.col(CORRUPT).isNotNull() if is_marked(frame) else F.col(whole[0]).isNull()
    return F.when(few, F.expr(f"struct({', '.join(whole)})"))


def count_rows(frame: "DataFrame", name: str = ROWS) -> "tuple[DataFrame, Observation]":
    """Return the frame, and an observation of the number of its rows, under this name."""
    from pyspark.sql import functions as F  # noqa: N812

    return observe(frame, F.count(F.lit(1)).alias(name))


def observe(frame: "DataFrame", *metrics: "Column") -> "tuple[DataFrame, Observation]":
    """Return the frame, and an observation of these metrics over its rows."""
    from pyspark.sql import Observation

    observation = Observation(f"rota-{uuid.uuid4()}")
    return frame.observe(observation, *metrics), observation


def read_counts(observation: "Observation") -> dict[str, int]:
    """Return what Spark counted in a job that read the observed frame."""
    return {name: int(value) for name, value in observation.get.items()}


def require_same(one: int, other: int, what: str, than: str) -> None:
    """Raise EnvironmentFailed if two counts of the same records differ."""
    if one != other:
        why = f"{one} {what}, {other} that {than}"
        raise EnvironmentFailed(
            f"The counts of a job differ: {why}. Nothing of it was committed; it is tried again. If it comes back: is the "
            f"folder of the table on one disk for Spark and for this run?",
            why=why,
            counts=True,
        )


def _has_counted(observation: "Observation") -> bool:
    """Return whether an action has reported its counts already."""
    classic = getattr(observation, "_jo", None)
    return bool(classic.future().isCompleted()) if classic is not None else bool(observation.get)
