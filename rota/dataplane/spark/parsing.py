"""Which records are bad: one verdict a record, by one parse of the whole declared schema; and how many there were.

Law: a record is good if and only if every declared column of it parses, whatever the transform uses of it and whatever
Spark leaves out because of that. What Spark need not read it does not parse, and a value that nobody parses is never bad:
so every frame that tells good from bad is observed right above the reader, by an expression that needs every declared
column, and no filter goes below it.

Law: counted, not believed. Records read are those handed to the transform and the bad ones; rows that went into a write are
those that its files hold. Where they are not, nothing is committed, and it is tried again (EnvironmentFailed). What goes
by is counted by observations, and each of them above another step costs a job that only copies rows 5 to 10 %. A transform
whose plan keeps each row (see `plans`) needs none: the rows that its files hold are the records of the source, less the
bad ones. The one straight above the reader costs a job of CSV 8 %. Without a transform there is none, either, where the
reader leaves bad records out: every column is written, and so parsed, and the good records are the rows of the files.

Law: Spark's reader may leave bad records out, so that it need not mark them, which costs an eighth of a job of CSV. It does
where somebody else counted how many records there are at most (`Records.most`): as many good ones say that none was bad.
If there are fewer, all are read again, marked, and the good ones must be as many as before.

What parses is Spark's PERMISSIVE verdict under the options of the source. A record is a line (with `multiLine` CSV's
quoted lines, and JSON's first value of the file); a blank line is none, and an array of JSON objects is as many as it has.

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

Any value may be null or, in JSON, missing; an empty field of CSV is null. What Spark rounds is good: digits behind the
point of a decimal, a float beyond its range (Infinity), nanoseconds. A text of which Spark's parsers guess what it means is
bad: see `values`. Known and not mended: a time without a day gets the day on which it is read, seconds beyond the range of a
timestamp wrap, a decimal "1,5" is 15 (`locale`). JSON has no `tinyint`: Spark takes 200 for -56. With a separator of several
characters the last of the empty fields that end a record behind a quoted one is an empty text and not null, which a number
cannot be; and so it can be in a record of separators alone, behind a record that ends in a quoted field.
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
        """Raises EnvironmentFailed where so many rows are not one for each good record."""
        require_same(self.records, rows + self.bad, "records to read", "were written or found bad")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The records of a reader's frame: `good` are those that parse, without `_corrupt`, under the alias `mark`; `frame` has
    all of them. `seen` counts the records, `handed` the good ones; None where nobody counts them."""

    frame: "DataFrame"
    good: "DataFrame"
    mark: str
    seen: "Observation | None"
    handed: "Observation | None" = None

    def keeps_each_row(self, plan: str) -> bool:
        """Whether a result of this plan, empty where there is no transform, has one row for each good record, and a job that
        writes it counts what is `seen`: not after an action inside the transform, which was counted instead."""
        same = not plan or plans.keeps_each_row(plan, self.mark)
        return same and not (self.seen and _told(self.seen))

    def is_read_once(self, plan: str) -> bool:
        """Whether a job that writes the transform's result of this plan reads each record once and so counts it: not where a
        limit, a join or a filter that nothing passes lets Spark leave some out, nor after an action inside the transform."""
        watched = [one for one in (self.seen, self.handed) if one]
        read = plans.reads_to_the_end(plan, [one._name for one in watched])
        return read and not (self.seen and _told(self.seen))

    def tally(self) -> Tally | None:
        """What such a job counted; None where Spark did not say. Raises EnvironmentFailed where its counts do not fit."""
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
    frame: "DataFrame", corruptible: bool, identify: Identify = columns.restore_ids, *, counted: bool = False
) -> Parsed:
    """The frame, in which bad records are counted. One that is not `corruptible` has no bad records, and nobody counts them:
    a column `_corrupt` of it is the user's. `identify`: see `Records`; it makes a step, whose columns `origins` reads.
    `counted`: all columns of the good records alone are written as they are, and so are counted there."""
    from pyspark.sql import functions as F  # noqa: N812

    mark = f"rota_{uuid.uuid4().hex}"  # of letters that no plan quotes
    seen, marked = None, corruptible and is_marked(frame)  # Spark is asked for the columns of each frame anew
    if corruptible and not counted:
        frame, seen = count_records(frame)
    frame = identify(frame)
    good = frame.where(F.col(CORRUPT).isNull()).drop(CORRUPT) if marked else frame
    return Parsed(frame, good.alias(mark), mark, seen)


def watch(frame: "DataFrame", corruptible: bool, identify: Identify = columns.restore_ids) -> Parsed:
    """The same, in which what is handed to the transform is counted as well."""
    parsed = parse(frame, corruptible, identify)
    if parsed.seen:
        good, handed = count_rows(parsed.good)
        return replace(parsed, good=good, handed=handed)
    good, seen = count_rows(parsed.good, RECORDS)  # none is bad: what is handed on is what was read
    return replace(parsed, good=good, seen=seen)


def count_records(frame: "DataFrame") -> "tuple[DataFrame, Observation]":
    """The frame, and what tells how many records of it went by and how many were bad. Straight above the reader it costs
    Spark nearly nothing; above a step it would make Spark copy each row."""
    from pyspark.sql import functions as F  # noqa: N812

    marked = F.count(mark_whole(frame)).alias(BAD if is_marked(frame) else EMPTY)
    return observe(frame, F.count(F.lit(1)).alias(RECORDS), marked)


def is_marked(frame: "DataFrame") -> bool:
    """Whether bad records are in the frame of a source that can have some, marked by `_corrupt`; else its reader left them
    out."""
    return CORRUPT in frame.columns


def mark_whole(frame: "DataFrame") -> "Column":
    """Every declared column of a bad record, null for a good one; without bad ones, of a record whose first column is null.
    Built for few, and so nearly for nothing; a count of it makes Spark parse them all. The columns are named without their
    frame: of thousands that name it, Spark looks each up among all."""
    from pyspark.sql import functions as F  # noqa: N812

    whole = [f"`{name.replace('`', '``')}`" for name in frame.columns if name != CORRUPT]
    few = F.col(CORRUPT).isNotNull() if is_marked(frame) else F.col(whole[0]).isNull()
    return F.when(few, F.expr(f"struct({', '.join(whole)})"))


def count_rows(frame: "DataFrame", name: str = ROWS) -> "tuple[DataFrame, Observation]":
    """The frame, and what tells by this name how many rows of it went by."""
    from pyspark.sql import functions as F  # noqa: N812

    return observe(frame, F.count(F.lit(1)).alias(name))


def observe(frame: "DataFrame", *metrics: "Column") -> "tuple[DataFrame, Observation]":
    """The frame, and what tells these metrics of the rows that went by."""
    from pyspark.sql import Observation

    observation = Observation(f"rota-{uuid.uuid4()}")
    return frame.observe(observation, *metrics), observation


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
            counts=True,
        )


def _told(observation: "Observation") -> bool:
    """Whether an action has told already."""
    classic = getattr(observation, "_jo", None)
    return bool(classic.future().isCompleted()) if classic is not None else bool(observation.get)
