"""Objects of a bucket as Spark reads them: by an explicit list of their names, over `s3a`.

Law: each row has the partition and the offset of the object that Spark says it is from, and a row of any other object is an
error. Both are looked up in a literal of the plan by the name of the object as Spark has it, so that nothing is joined.

The name is of the object that the thread has open (`input_file_name`). Spark copies it into no row, as it does with the path
of `_metadata`. It is known in the step above the reader alone, so Spark lets no filter pass that step; where nothing is
open it is empty, which is an error.

Spark asks twice for each object of a list, one after the other, before a job; of a folder it asks once for a thousand. So a
folder of which the job reads all objects is named instead of them. Whether it has no others is told by the index first, and
then by what Spark found there, which it keeps for the job: 435 objects in 64 folders are listed in 0.3 s, and were in 1.4 s.

The literal is one map. Spark makes a hash table of it, once a task, by a setting of `session`; without that it would look
through the map from its beginning, for each row. A job that goes row by row (see `plans`) needs no map: a task's Python is
given a number of the name, and looks up each run of rows (`writing`). Ten million rows of Parquet take 1 CPU second less so.
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

GLOB = re.compile(r"[][{}*?\\]")  # what Hadoop takes for a pattern
# What Java escapes in the path of a URI; it leaves other letters than those of ASCII.
ESCAPED = re.compile(r"[\x00-\x20\"#%<>?\[\\\]^`{|}\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
FOUND = "struct<p:string,o:bigint>"
FEW = 2  # objects of a folder for which it is not asked


@dataclass(frozen=True, slots=True)
class Listed:
    """Objects below `place`, as Hadoop names it (`s3a://bucket/prefix`), by partition and offset: see `Shown`. Of the
    partitions that are `whole` nobody knew others."""

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
        """See `Shown.load`: no other columns."""
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
        """See `Shown.identify`. Two steps: in one Spark would look twice."""
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
        """See `Shown.check_seen`: Spark asks the bucket for each by its name, and fails where there is none."""

    def _look_up(self, name: "Column") -> "Column":
        from pyspark.sql import functions as F  # noqa: N812

        known = {name: {"p": partition, "o": offset} for name, (partition, offset) in self.named.items()}
        return F.element_at(F.from_json(F.lit(json.dumps(known, separators=(",", ":"))), f"map<string,{FOUND}>"), name)

    def _list(self) -> Iterator[str]:
        return (path for of in self.paths.values() for path in of.values())

    def _name(self, path: str) -> str:
        """What Spark calls the object."""
        return escape_as_java(f"{self.place}/{path}")

    def _escape(self, path: str) -> str:
        return GLOB.sub(r"\\\g<0>", f"{self.place}/{path}")


def escape_as_java(uri: str) -> str:
    """The URI as Java prints it."""
    return ESCAPED.sub(lambda found: quote(found[0], safe=""), uri)
