"""Objects of a bucket as Spark reads them: by an explicit list of their names, over `s3a`.

Law: each row gets the partition and offset of the object from which Spark read it. A row of any other object is an error. A
literal in the plan maps the object's name to both, so Spark joins nothing.

The name comes from `input_file_name`: the object that the task's thread has open. Spark does not copy this name into each
row, unlike the path of `_metadata`. The name is valid only in the step right above the reader, so Spark pushes no filter
below that step. Without an open object the name is empty, which is an error.

Before a job, Spark sends two requests for each object of a list, one after the other, but one request for a thousand
objects of a folder. So a job that reads all objects of a folder names the folder instead. The index must know no other
object there, nor may Spark's listing for the job. (435 objects in 64 folders: 0.3 s instead of 1.4 s.)

The literal is one map. A setting of `session` lets Spark build a hash table of it once a task; otherwise Spark would scan
the map for each row. A job that goes row by row (see `plans`) needs no map: Spark passes a hash of the name to the task's
Python, which looks up each run of rows (`writing`). This saves 1 CPU second for ten million rows of Parquet.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rota.dataplane.files.added import Field, extend
from rota.dataplane.files.staging import select_begins
from rota.pipeline import Files
from rota.record import OFFSET, PARTITION
from rota.stores import describe_to_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

GLOB = re.compile(r"[][{}*?\\]")  # what Hadoop reads as a pattern
# What Java escapes in the path of a URI; Java leaves letters beyond ASCII.
ESCAPED = re.compile(r"[\x00-\x20\"#%<>?\[\\\]^`{|}\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
FOUND = "struct<p:string,o:bigint>"
FEW = 2  # objects of a folder up to which a job names the objects


@dataclass(frozen=True, slots=True)
class Listed:
    """Objects below `place`, in the form of Hadoop (`s3a://bucket/prefix`), by partition and offset: see `Shown`. `whole`:
    the partitions of which `paths` has all objects that the index knows."""

    place: str
    paths: Mapping[str, Mapping[int, str]]
    whole: frozenset[str] = frozenset()

    def load(
        self,
        spark: "SparkSession",
        declared: Files,
        options: Mapping[str, str],
        corrupt: str = "",
        added: Iterable[Field] = (),
    ) -> "DataFrame":
        """See `Shown.load`; without `_partition` and `_offset`."""
        schema = extend(spark, f"{declared.schema}, {corrupt}".rstrip(", "), added)
        reader = spark.read.schema(schema).format(declared.format).options(**options, **describe_to_spark())
        many = {p: of for p, of in self.paths.items() if p in self.whole and len(of) > FEW}
        if many:
            folders = {path.partition("/")[0] for of in many.values() for path in of.values()}
            rest = (path for p, of in self.paths.items() if p not in many for path in of.values())
            named = [*sorted(folders), *rest]
            frame = reader.option("recursiveFileLookup", "true").load(list(map(self._escape, named)))
            if set(frame.inputFiles()) == set(map(self._name, self._list())):
                return frame
        return reader.load(list(map(self._escape, self._list())))

    def load_text(
        self, spark: "SparkSession", some: Sequence[Any], options: Mapping[str, str], whole: bool
    ) -> "DataFrame":
        """See `Shown.load_text`."""
        paths = [self._escape(one.path) for one in some]
        frame = spark.read.options(**options, **describe_to_spark()).text(paths, wholetext=whole)
        return self.identify(frame.select("value", *select_begins()))

    def identify(self, frame: "DataFrame") -> "DataFrame":
        """See `Shown.identify`. Two steps: in one, Spark would look up each name twice."""
        from pyspark.sql import functions as F  # noqa: N812

        name = F.input_file_name()
        unknown = F.raise_error(F.concat(F.lit("Spark read what is not of this job: "), name)).cast(FOUND)
        frame = frame.withColumn(PARTITION, F.coalesce(self._look_up(name), unknown))
        return frame.withColumns({PARTITION: F.col(PARTITION)["p"], OFFSET: F.col(PARTITION)["o"]})

    @property
    def named(self) -> Mapping[str, tuple[str, int]]:
        """See `Shown.named`."""
        return {self._name(path): (p, offset) for p, of in self.paths.items() for offset, path in of.items()}

    def check_seen(self, spark: "SparkSession") -> None:
        """See `Shown.check_seen`: Spark requests each object by its name, and fails if one is missing."""

    def _look_up(self, name: "Column") -> "Column":
        from pyspark.sql import functions as F  # noqa: N812

        known = {name: {"p": partition, "o": offset} for name, (partition, offset) in self.named.items()}
        return F.element_at(F.from_json(F.lit(json.dumps(known, separators=(",", ":"))), f"map<string,{FOUND}>"), name)

    def _list(self) -> Iterator[str]:
        return (path for of in self.paths.values() for path in of.values())

    def _name(self, path: str) -> str:
        """Return the object's name in Spark."""
        return escape_as_java(f"{self.place}/{path}")

    def _escape(self, path: str) -> str:
        return GLOB.sub(r"\\\g<0>", f"{self.place}/{path}")


def escape_as_java(uri: str) -> str:
    """Return the URI as Java prints it."""
    return ESCAPED.sub(lambda found: quote(found[0], safe=""), uri)
