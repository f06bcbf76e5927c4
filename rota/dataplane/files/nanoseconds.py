"""Read times of nanoseconds as microseconds: `files(..., nanoseconds="truncate")`.

Spark refuses a time of nanoseconds as `timestamp`, and reads it as `bigint`: the stored number. So a column with
nanoseconds in a file of the job is read as numbers. One expression converts them to times, by the unit of each file.

Law: a fraction of a microsecond is rounded toward the past, also before 1970. Null stays null.

Law: only declared columns are truncated. Nanoseconds in a field within another column are refused, as without the option.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rota.dataplane.columns import quote_name
from rota.dataplane.files.parquet import Footer
from rota.record import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNITS = {("INT64", f"Timestamp {unit}"): unit for unit in ("milliseconds", "microseconds", "nanoseconds")}
FACTORS = {"milliseconds": 1000, "microseconds": 1}
NUMBER = ("INT64", "None")
TIMES = ("timestamp", "timestamp_ntz")
Footers = Mapping[str, Footer | None]  # by path


@dataclass(frozen=True, slots=True)
class Truncated:
    """The columns of a job that are read as numbers. `kinds`: the declared type of each. `units`: the unit of each column
    with a time, by the file's path and the column's lower-case name."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, spark: "SparkSession", schema: str, footers: Footers) -> "Truncated":
        """Return the columns of this schema (DDL) in which a file with rows stores nanoseconds."""
        found = {
            path: {name.lower(): UNITS[part.key] for name, part in footer.whole.parts if part.key in UNITS}
            for path, footer in footers.items()
            if footer and footer.rows
        }
        names = {name for units in found.values() for name, unit in units.items() if unit == "nanoseconds"}
        if not names:
            return cls()
        declared = spark.createDataFrame([], schema).schema
        kinds = {one.name: kind for one in declared if (kind := one.dataType.typeName()) in TIMES}
        return cls({name: kind for name, kind in kinds.items() if name.lower() in names}, found)

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The columns as fields of a Spark schema, in JSON."""
        return [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in self.kinds]

    def adapt(self, footer: Footer | None) -> Footer | None:
        """Return the footer with these columns as numbers, as Spark reads them."""
        if footer is None or not self.kinds:
            return footer
        numbers = {name.lower() for name in self.kinds}
        parts = tuple(
            (name, replace(part, key=NUMBER) if name.lower() in numbers and part.key in UNITS else part)
            for name, part in footer.whole.parts
        )
        return replace(footer, whole=replace(footer.whole, parts=parts))

    def restore(self, frame: "DataFrame", offsets: Mapping[str, tuple[str, int]]) -> "DataFrame":
        """Convert the numbers of a frame with `_partition` and `_offset` to times. `offsets`: both for each path."""
        from pyspark.sql import functions as F  # noqa: N812

        made = {}
        for name, kind in self.kinds.items():
            quoted = quote_name(name)
            time = F.expr(f"{quoted} div 1000 - if({quoted} % 1000 < 0, 1, 0)")
            for unit, factor in FACTORS.items():
                others = [offsets[path] for path, units in self.units.items() if units.get(name.lower()) == unit]
                if others:
                    file = F.concat_ws(" ", PARTITION, F.col(OFFSET).cast("string"))
                    here = file.isin([f"{partition} {offset}" for partition, offset in others])
                    time = F.when(here, F.col(quoted) * factor).otherwise(time)
            made[name] = F.timestamp_micros(time).cast(kind)
        return frame.withColumns(made) if made else frame
