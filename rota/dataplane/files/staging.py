"""Link landed files under names from which Spark derives the partition and offset of a row.

Law: a file that is linked as `_partition=<name of the id>/_offset=<ordinal>/file.<suffix>` gets these two columns in each
row, at almost no cost. The name is `names.link`, which Spark decodes to the id. If one id of a job has no such name, all
ids of the job use `names.split`. An error of Spark that names a link is reported with the name of the file.

Law: if only Spark counts the records of text files, Spark must first see each link, and its file at the size in the index.
An outdated listing or size in the cache of a network disk would lose rows, and no other check would notice.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from rota.dataplane import columns, names
from rota.dataplane.files.added import Field, extend
from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.files.landing import LandedBytes
from rota.errors import EnvironmentFailed
from rota.ledger.values import Ranges
from rota.pipeline import Files
from rota.record import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LINK = re.compile(rf"(?:file:)?/\S*/{PARTITION}=([^/\s]+)/{OFFSET}=(\d+)/file[.\w]*")
BLOCKS = (".snappy", ".lz4")  # suffixes of Hadoop's own formats
ENDED = re.compile(rf"/{PARTITION}=([^/]+)/{OFFSET}=(\d+)/[^/]*$")  # how the path of a link ends


@dataclass(frozen=True, slots=True)
class Links:
    """Links below `stage` to the files of the ranges, which lie below `root`: see `Shown`."""

    stage: Path
    root: Path
    files: Mapping[str, Sequence[LandedFile]]
    ranges: Ranges

    @classmethod
    def make(cls, stage: Path, root: Path, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges) -> "Links":
        """Make the links. Raises EnvironmentFailed."""
        link_files(stage, root, files, ranges)
        return cls(stage, root, files, ranges)

    def load(
        self,
        spark: "SparkSession",
        declared: Files,
        options: Mapping[str, str],
        corrupt: str = "",
        added: Iterable[Field] = (),
    ) -> "DataFrame":
        """See `Shown.load`; with `_partition` and `_offset`."""
        return load_links(spark, self.stage, declared, options, corrupt, added)

    def load_text(
        self, spark: "SparkSession", some: Sequence[LandedBytes], options: Mapping[str, str], whole: bool
    ) -> "DataFrame":
        """See `Shown.load_text`."""
        paths, links = (
            of(place, self.files, self.ranges) for of, place in ((list_paths, self.root), (list_links, self.stage))
        )
        link_of: dict[LandedBytes, Path] = dict(zip(paths, links, strict=True))
        places = [link_of[one] for one in some] if len(some) < len(paths) else [self.stage]
        reader = spark.read.schema(f"value string, {PARTITION} string, {OFFSET} bigint").options(**options)
        frame = reader.option("basePath", str(self.stage)).text(list(map(names.escape_path, places)), wholetext=whole)
        return self.identify(frame.select("value", PARTITION, OFFSET, *select_begins()))

    def identify(self, frame: "DataFrame") -> "DataFrame":
        """See `Shown.identify`: Spark's reader returned the ids, or names of `names.split` to decode."""
        return (columns.keep_ids if are_plain(self.ranges) else columns.restore_ids)(frame)

    @property
    def named(self) -> Mapping[str, tuple[str, int]]:
        """See `Shown.named`: empty, since Spark's reader adds both columns as constants of a file."""
        return {}

    def check_seen(self, spark: "SparkSession") -> None:
        """See `Shown.check_seen`."""
        check_seen(spark, self.stage, self.files, self.ranges)


def select_begins() -> "list[Column]":
    """Return the column `begins`: whether a line is in the first Spark split of its file."""
    from pyspark.sql import functions as F  # noqa: N812

    return [(F.col("_metadata.file_block_start") == 0).alias("begins")]


def are_plain(partitions: Iterable[str]) -> bool:
    """Whether Spark's reader returns the ids of all partitions of a job, not names of `names.split`."""
    return all(map(names.link, partitions))


def name_folders(ranges: Ranges) -> dict[str, str]:
    """Return the name of each partition's folder."""
    name = names.link if are_plain(ranges) else names.split
    return {p: str(name(p)) for p in ranges}


def link_files(stage: Path, root: Path, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges) -> None:
    """Link the files of the ranges, which lie below `root`, into the folder `stage`. Raises EnvironmentFailed."""
    try:
        for link, path in zip(list_links(stage, files, ranges), list_paths(root, files, ranges), strict=True):
            link.parent.mkdir(parents=True)
            link.symlink_to(path)
    except OSError as error:
        raise EnvironmentFailed(f"{stage} cannot be written ({error}). Check the disk and its rights") from error


def list_links(stage: Path, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges) -> list[Path]:
    """Return the links to the landed files of the ranges, in the order of `list_paths`."""
    return [
        stage / f"{PARTITION}={name}" / f"{OFFSET}={offset}" / f"file{find_suffix(file.path)}"
        for partition, name in name_folders(ranges).items()
        for offset, file in enumerate(files[partition][slice(*ranges[partition])], ranges[partition][0])
    ]


def list_paths(root: Path, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges) -> list[Path]:
    """Return the paths of the landed files of the ranges."""
    return [root / file.path for partition, (start, end) in ranges.items() for file in files[partition][start:end]]


def load_links(
    spark: "SparkSession",
    stage: Path,
    declared: Files,
    options: Mapping[str, str],
    corrupt: str = "",
    added: Iterable[Field] = (),
) -> "DataFrame":
    """Return the records of the linked files with the declared columns, those of `corrupt` and `added`, and the partition
    and offset of each row."""
    schema = extend(spark, f"{declared.schema}, {corrupt}{PARTITION} string, {OFFSET} bigint", added)
    return spark.read.schema(schema).format(declared.format).options(**options).load(names.escape_path(stage))


def check_seen(spark: "SparkSession", stage: Path, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges) -> None:
    """Raise EnvironmentFailed for the first file of the ranges that Spark does not see below `stage` at its size in the
    index. Spark lists names and sizes, and opens no file."""
    sizes = spark.read.format("binaryFile").load(names.escape_path(stage)).select("path", "length").collect()
    seen = {(link[1], int(link[2])): size for path, size in sizes if (link := ENDED.search(path))}
    for partition, name in name_folders(ranges).items():
        start, end = ranges[partition]
        for offset, file in enumerate(files[partition][start:end], start):
            size = seen.get((name, offset), 0)  # Spark leaves out empty files
            if size != file.size:
                what = f"sees {size} bytes of" if size else "does not see"
                why = f"it {what} {file.path} (offset {offset}), which has {file.size} bytes"
                raise EnvironmentFailed(
                    f"Spark does not see what landed: {why}. Nothing was read; it is tried again. If it comes back: are the "
                    f"landing folder and the folder of the table on one disk for Spark and for this run?",
                    why=why,
                )


def explain_misnamed(landed: LandedBytes) -> str:
    """Return why Spark must not open a `.snappy` or `.lz4` file; empty if it may. Under these names Spark expects Hadoop's
    own format: a length, and the length of a block, for which Spark allocates memory unchecked. A file of another program
    has any number there, and the Spark process dies."""
    if find_suffix(landed.name).lower() not in BLOCKS:
        return ""
    with landed.open("rb") as file:
        head, size = file.read(8), file.seek(0, SEEK_END)
    if not head or (len(head) == 8 and 8 + int.from_bytes(head[4:], "big") <= size):
        return ""
    kind = find_suffix(landed.name)[1:]
    return f"is not {kind} as Hadoop writes it, and Spark reads no other. Land it as .gz, .bz2 or .zst"


def replace_links(text: str, name: Callable[[str, int], str | None]) -> str:
    """Return the text with `name(partition, offset)` in place of each link; a link stays if `name` returns None."""
    return LINK.sub(lambda link: name(_read_name(link[1]), int(link[2])) or link[0], text)


def _read_name(name: str) -> str:
    """Return the partition of a link's folder. An error of Spark may escape the name a second time; each id has a colon."""
    for _ in range(2):
        name = name if ":" in name else unquote(name)
    return names.partition(name)


def find_suffix(path: str) -> str:
    """Return the last suffix, by which Spark finds the compression."""
    suffix = Path(path).suffix
    return suffix if suffix[1:].isalnum() else ""
