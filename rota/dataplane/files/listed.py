"""Landed files as Spark reads them: by an explicit list of their names, `file:` on a disk and `s3a:` in a bucket.

Law: each row gets the partition and offset of the file from which Spark read it. A row of any other file is an error. A
literal in the plan maps the file's name to both, so Spark joins nothing.

The name comes from `input_file_name`: the file that the task's thread has open. Spark does not copy this name into each
row, unlike the path of `_metadata`. The name is valid only in the step right above the reader, so Spark pushes no filter
below that step. Without an open file the name is empty, which is an error.

The literal is one map. A setting of `session` lets Spark build a hash table of it once a task; otherwise Spark would scan
the map for each row. A job that goes row by row (see `plans`) needs no map: Spark passes a hash of the name to the task's
Python, which looks up each run of rows (`writing`). This saves 1 CPU second for ten million rows of Parquet.

Law: Spark refuses a list with a file that it does not see. If Spark alone counts the records of text files, it must also
see each file at the size in the index: an outdated size in the cache of a network disk would lose rows, and no other check
would notice.

Spark's own file system for disks reads a file `.x.crc` beside a file `x`, and opens no path with a colon. Hadoop's raw one,
by an option of the reader, does neither. A listed path is a pattern to Hadoop: each character of a pattern is escaped. In a
path with such a character Hadoop finds no colon, escaped or not; `explain_unlisted` names the path.

Before a job, Spark sends two requests for each object of a bucket, one after the other, but one request for a thousand
objects of a folder. So a job that reads all objects of a folder names the folder instead. The index must know no other
object there, nor may Spark's listing for the job. (435 objects in 64 folders: 0.3 s instead of 1.4 s.)
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from rota.dataplane import names
from rota.dataplane.files.added import Field, extend
from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.spark.words import UNSEEN
from rota.errors import EnvironmentFailed
from rota.ledger.values import Ranges
from rota.pipeline import Files
from rota.record import OFFSET, PARTITION
from rota.stores import describe_to_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

# What Java escapes in the path of a URI; Java leaves letters beyond ASCII.
ESCAPED = re.compile(r"[\x00-\x20\"#%<>?\[\\\]^`{|}\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
DISK = "file:///"
RAW = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
FOUND = "struct<p:string,o:bigint>"
FEW = 2  # objects of a folder up to which a job names the objects


@dataclass(frozen=True, slots=True)
class Listed:
    """Files below `place`, in the form of Hadoop (`file:///folder`, `s3a://bucket/prefix`), by partition and offset.
    `whole`: the partitions of which `files` has all that the index knows."""

    place: str
    files: Mapping[str, Mapping[int, LandedFile]]
    whole: frozenset[str] = frozenset()

    @classmethod
    def of(cls, place: str, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges) -> "Listed":
        """Return the files of the ranges."""
        whole = frozenset(p for p, of in ranges.items() if of == (0, len(files[p])))
        return cls(place, {p: {o: files[p][o] for o in range(*of)} for p, of in ranges.items()}, whole)

    def load(
        self,
        spark: "SparkSession",
        declared: Files,
        options: Mapping[str, str],
        corrupt: str = "",
        added: Iterable[Field] = (),
    ) -> "DataFrame":
        """Return the files' records with the declared columns, the columns of `corrupt` (DDL), and the `added` ones (fields
        of a Spark schema, in JSON). Raises EnvironmentFailed where Spark does not see a file."""
        schema = extend(spark, f"{declared.schema}, {corrupt}".rstrip(", "), added)
        reader = self._open(spark, options).schema(schema).format(declared.format)
        many = {p: of for p, of in self.files.items() if p in self.whole and len(of) > FEW}
        if many and not self.place.startswith(DISK):
            folders = {file.path.partition("/")[0] for of in many.values() for file in of.values()}
            rest = (file.path for p, of in self.files.items() if p not in many for file in of.values())
            frame = self._load(reader.option("recursiveFileLookup", "true"), [*sorted(folders), *rest])
            if set(frame.inputFiles()) == self.named.keys():
                return frame
        return self._load(reader, self._list_paths())

    def load_text(self, spark: "SparkSession", options: Mapping[str, str], whole: bool) -> "DataFrame":
        """Return the files' lines; with `whole`, each file as one value. The columns are `value`, `_partition`, `_offset`,
        and `begins`: whether the line is in the first Spark split of its file."""
        from pyspark.sql import functions as F  # noqa: N812

        reader = self._open(spark, options).format("text").option("wholetext", str(whole).lower())
        begins = (F.col("_metadata.file_block_start") == 0).alias("begins")
        return self.identify(self._load(reader, self._list_paths()).select("value", begins))

    def identify(self, frame: "DataFrame") -> "DataFrame":
        """Return a frame of `load` with the columns `_partition` and `_offset`. In two steps: in one, Spark would look up
        each name twice."""
        from pyspark.sql import functions as F  # noqa: N812

        name = F.input_file_name()
        unknown = F.raise_error(F.concat(F.lit("Spark read what is not of this job: "), name)).cast(FOUND)
        frame = frame.withColumn(PARTITION, F.coalesce(self._look_up(name), unknown))
        return frame.withColumns({PARTITION: F.col(PARTITION)["p"], OFFSET: F.col(PARTITION)["o"]})

    @property
    def named(self) -> Mapping[str, tuple[str, int]]:
        """See `Records.named`."""
        return {
            escape_as_java(f"{self.place}/{file.path}"): (p, offset)
            for p, of in self.files.items()
            for offset, file in of.items()
        }

    def check_seen(self, spark: "SparkSession") -> None:
        """Raise EnvironmentFailed for the first file that Spark does not see at its size in the index. A bucket returns no
        outdated size. Spark lists names and sizes, and opens no file."""
        if not self.place.startswith(DISK):
            return
        from pyspark.sql import functions as F  # noqa: N812

        listed = self._load(self._open(spark, {}).format("binaryFile"), self._list_paths())
        sizes = dict(map(tuple, listed.select(F.input_file_name(), "length").collect()))
        for name, (partition, offset) in self.named.items():
            file = self.files[partition][offset]
            if (size := sizes.get(name, 0)) != file.size:  # Spark leaves out empty files
                raise explain_unseen(
                    f"it sees {size} bytes of {file.path} (offset {offset}), which has {file.size} bytes"
                )

    def _open(self, spark: "SparkSession", options: Mapping[str, str]) -> "DataFrameReader":
        return spark.read.options(**options, **(RAW if self.place.startswith(DISK) else describe_to_spark()))

    def _load(self, reader: "DataFrameReader", paths: Iterable[str]) -> "DataFrame":
        """Let Spark list these paths now."""
        from pyspark.errors import AnalysisException

        frame = reader.load([names.escape_path(f"{self.place}/{path}") for path in paths])
        try:
            _ = frame.schema
        except AnalysisException as error:
            if UNSEEN not in str(error):
                raise
            raise explain_unseen(
                shorten(f"it does not see {error.getMessageParameters()['path']}", self.place)
            ) from None
        return frame

    def _list_paths(self) -> list[str]:
        return [file.path for of in self.files.values() for file in of.values()]

    def _look_up(self, name: "Column") -> "Column":
        from pyspark.sql import functions as F  # noqa: N812

        known = {name: {"p": partition, "o": offset} for name, (partition, offset) in self.named.items()}
        return F.element_at(F.from_json(F.lit(json.dumps(known, separators=(",", ":"))), f"map<string,{FOUND}>"), name)


def explain_unlisted(place: str, path: str) -> str:
    """Return why Spark cannot be given the path below `place`, with the next step; empty if it can."""
    whole = f"{place.partition('://')[2]}/{path}"
    if ":" not in whole or not names.GLOB.search(whole):
        return ""
    return (
        f"has a colon in its whole path, and one of {names.PATTERN}: Hadoop finds no such path. Land it under another name, "
        f"or rename its folder"
    )


def explain_unseen(why: str) -> EnvironmentFailed:
    """Return the error of a file that Spark does not see as the index has it."""
    return EnvironmentFailed(
        f"Spark does not see what landed: {why}. Nothing was read; it is tried again. If it comes back: is the landing "
        f"folder on one disk for Spark and for this run?",
        why=why,
    )


def escape_as_java(uri: str) -> str:
    """Return the URI as Java prints it."""
    return ESCAPED.sub(lambda found: quote(found[0], safe=""), uri)


def shorten(text: str, place: str) -> str:
    """Return an error's text with the paths of files below the landing folder in place of Spark's names for them. Spark
    prints a file as a URI, which is escaped, or as a path of Hadoop, which is not."""
    text = re.sub(re.escape(escape_as_java(f"{place}/")) + r"(\S*)", lambda found: unquote(found[1]), text)
    return text.replace(f"{place.replace(DISK, 'file:/')}/", "")
