"""Links to landed files under the names from which Spark takes a row's partition and offset.

Law: a file that is linked as `_partition=<name of the id>/_offset=<ordinal>/file.<suffix>` gives each of its rows these two
columns, at next to no cost. The name is `names.link`, of which Spark makes the id itself, or `names.split` for all ids of a
job one of which has no other. What an error of Spark says of a link is said of the file.

Law: where Spark alone counts what a text holds, it sees each link, and its file at the size that the index has, before it
reads any. A listing or a size from the cache of a network disk would leave rows out, which nobody else notices.
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
        """Makes the links. Raises EnvironmentFailed."""
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
        """See `Shown.load`: `_partition`, and `_offset`, are among the columns."""
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
        """See `Shown.identify`: Spark's reader gave the ids, or what `names.split` has in their place."""
        return (columns.keep_ids if are_plain(self.ranges) else columns.restore_ids)(frame)

    @property
    def named(self) -> Mapping[str, tuple[str, int]]:
        """See `Shown.named`: Spark's reader gives both as constants of a file."""
        return {}

    def check_seen(self, spark: "SparkSession") -> None:
        """See `Shown.check_seen`."""
        check_seen(spark, self.stage, self.files, self.ranges)


def select_begins() -> "list[Column]":
    """The column `begins` of a frame of lines: whether Spark read the line with the beginning of its file."""
    from pyspark.sql import functions as F  # noqa: N812

    return [(F.col("_metadata.file_block_start") == 0).alias("begins")]


def are_plain(partitions: Iterable[str]) -> bool:
    """Whether Spark's reader gives the ids of the partitions of a job, and not what `names.split` has."""
    return all(map(names.link, partitions))


def name_folders(ranges: Ranges) -> dict[str, str]:
    """The names of the partitions of a job."""
    name = names.link if are_plain(ranges) else names.split
    return {p: str(name(p)) for p in ranges}


def link_files(stage: Path, root: Path, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges) -> None:
    """Links the files of the ranges, which lie below `root`, into the folder `stage`. Raises EnvironmentFailed."""
    try:
        for link, path in zip(list_links(stage, files, ranges), list_paths(root, files, ranges), strict=True):
            link.parent.mkdir(parents=True)
            link.symlink_to(path)
    except OSError as error:
        raise EnvironmentFailed(f"{stage} cannot be written ({error}). Check the disk and its rights") from error


def list_links(stage: Path, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges) -> list[Path]:
    """The links to the landed files of the ranges, in the order of `list_paths`."""
    return [
        stage / f"{PARTITION}={name}" / f"{OFFSET}={offset}" / f"file{find_suffix(file.path)}"
        for partition, name in name_folders(ranges).items()
        for offset, file in enumerate(files[partition][slice(*ranges[partition])], ranges[partition][0])
    ]


def list_paths(root: Path, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges) -> list[Path]:
    """The landed files of the ranges."""
    return [root / file.path for partition, (start, end) in ranges.items() for file in files[partition][start:end]]


def load_links(
    spark: "SparkSession",
    stage: Path,
    declared: Files,
    options: Mapping[str, str],
    corrupt: str = "",
    added: Iterable[Field] = (),
) -> "DataFrame":
    """What is linked below `stage`, with the declared columns, the columns `corrupt`, those that are added, and the two that
    say where each row is from."""
    schema = extend(spark, f"{declared.schema}, {corrupt}{PARTITION} string, {OFFSET} bigint", added)
    return spark.read.schema(schema).format(declared.format).options(**options).load(names.escape_path(stage))


def check_seen(spark: "SparkSession", stage: Path, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges) -> None:
    """Raises EnvironmentFailed for the first file of the ranges that Spark does not see below `stage` as the index has it.
    Spark looks at names and sizes, and opens nothing."""
    sizes = spark.read.format("binaryFile").load(names.escape_path(stage)).select("path", "length").collect()
    seen = {(link[1], int(link[2])): size for path, size in sizes if (link := ENDED.search(path))}
    for partition, name in name_folders(ranges).items():
        start, end = ranges[partition]
        for offset, file in enumerate(files[partition][start:end], start):
            size = seen.get((name, offset), 0)  # Spark leaves out what has no bytes
            if size != file.size:
                what = f"sees {size} bytes of" if size else "does not see"
                why = f"it {what} {file.path} (offset {offset}), which has {file.size} bytes"
                raise EnvironmentFailed(
                    f"Spark does not see what landed: {why}. Nothing was read; it is tried again. If it comes back: are the "
                    f"landing folder and the folder of the table on one disk for Spark and for this run?",
                    why=why,
                )


def explain_misnamed(landed: LandedBytes) -> str:
    """Why Spark must not open a file that is called `.snappy` or `.lz4`; empty if it may. Under these names it reads what
    Hadoop alone writes: a length, and then the length of a block, for which it makes room unseen. What another program
    compressed has any number there, and the whole Spark dies of it."""
    if find_suffix(landed.name).lower() not in BLOCKS:
        return ""
    with landed.open("rb") as file:
        head, size = file.read(8), file.seek(0, SEEK_END)
    if not head or (len(head) == 8 and 8 + int.from_bytes(head[4:], "big") <= size):
        return ""
    kind = find_suffix(landed.name)[1:]
    return f"is not {kind} as Hadoop writes it, and Spark reads no other. Land it as .gz, .bz2 or .zst"


def replace_links(text: str, name: Callable[[str, int], str | None]) -> str:
    """The text with `name(partition, offset)` in place of each link; None leaves it."""
    return LINK.sub(lambda link: name(_read_name(link[1]), int(link[2])) or link[0], text)


def _read_name(name: str) -> str:
    """The partition of a link's folder. Spark's errors may have escaped the name once more; each id has a colon."""
    for _ in range(2):
        name = name if ":" in name else unquote(name)
    return names.partition(name)


def find_suffix(path: str) -> str:
    """The last suffix, by which Spark finds the compression."""
    suffix = Path(path).suffix
    return suffix if suffix[1:].isalnum() else ""
