"""The verifier: compares the landed rows with the table's rows, and reads both only with pyarrow.

Invariant: the verdict is right only if the table has each landed row exactly as often as it landed, under the partition and
the offset of its file. The offset ranges in the table's log must follow each other from 0 to the last file, without a gap or
an overlap. Files below the table that no version names are orphans: they are counted, and no reader reads them.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
from pyarrow import fs

from rota.demo import deltalog
from rota.demo.landed_topic import LandedTopic
from rota.local.storage import open_below

PARTITION, OFFSET, SIGN = "_partition", "_offset", "_sign"
SHOWN = 20  # lines of detail in a verdict


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result. `missing`, `duplicates` and `quarantined` count rows; `gaps` and `overlaps` count offsets."""

    partitions: int
    files_landed: int
    rows_landed: int
    rows_written: int
    missing: int
    duplicates: int
    gaps: int
    overlaps: int
    unreadable: int
    quarantined: int
    batches: int
    versions: int
    orphans: int
    orphan_bytes: int
    details: tuple[str, ...]

    @property
    def right(self) -> bool:
        """Return whether no row was lost, doubled or quarantined, and each landed row was consumed."""
        wrong = self.missing, self.duplicates, self.gaps, self.overlaps, self.unreadable, self.quarantined
        return not any(wrong) and self.rows_landed == self.rows_written > 0


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A landed file. `offset` is its ordinal in the index; None if the index does not have it."""

    path: str
    partition: str
    offset: int | None


def verify(landing: fs.FileSystem | LandedTopic, table: fs.FileSystem, pipeline: str, null: str = "NA") -> Verdict:
    """Compare the CSV files below `landing`, or the lines of a topic, with `main`, `index` and `quarantine` below `table`;
    `null` is null in CSV."""
    details: list[str] = []
    main = open_below(table, "main")
    log = deltalog.read(main)
    written, unreadable = _written(main, log, details)
    kinds = {field.name: field.type for field in written.schema}
    options = pcsv.ConvertOptions(column_types=kinds, null_values=[null], strings_can_be_null=True)
    if isinstance(landing, LandedTopic):
        expected, counts = landing.read(pipeline, options)
    else:
        landed = _landed(landing, open_below(table, "index"), pipeline)
        expected, counts = _expected(landing, landed, options, details), Counter(f.partition for f in landed)
    missing, duplicates = _compared(expected, written, details)
    gaps, overlaps = _ranges(log, counts, details)
    orphans = _orphans(main, log)
    return Verdict(
        partitions=len(counts),
        files_landed=counts.total(),
        rows_landed=expected.num_rows,
        rows_written=written.num_rows,
        missing=missing,
        duplicates=duplicates,
        gaps=gaps,
        overlaps=overlaps,
        unreadable=unreadable,
        quarantined=_quarantined(open_below(table, "quarantine")),
        batches=sum(1 for c in log.commits if ranges(c)),
        versions=log.version + 1,
        orphans=len(orphans),
        orphan_bytes=sum(one.size for one in orphans),
        details=tuple(details[:SHOWN]),
    )


def ranges(commit: deltalog.Commit) -> dict[str, tuple[int, int]]:
    """Return the offset range of each partition that this version committed; empty for a claim or a maintenance."""
    text = commit.info.get("rota.ranges")
    return {p: (int(a), int(b)) for p, (a, b) in json.loads(text).items()} if text else {}


def _landed(landing: fs.FileSystem, index: fs.FileSystem, pipeline: str) -> list[LandedFile]:
    """Return every visible file, with its ordinal in the index."""
    ordinals: dict[str, int] = {}
    if deltalog.exists(index):
        for file in sorted(deltalog.read(index).files):
            for row in _read(index, file).to_pylist():
                ordinals["/".join(row["path"].split("/")[-2:])] = row["ordinal"]
    found = (one for one in _list_files(landing, "csv") if one.base_name[0] not in "._")
    return [
        LandedFile(one.path, f"{pipeline}:{one.path.split('/')[0]}", ordinals.get(one.path))
        for one in sorted(found, key=lambda one: str(one.path))
    ]


def _list_files(folder: fs.FileSystem, kind: str) -> list[fs.FileInfo]:
    there = folder.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
    return [one for one in there if one.is_file and one.extension == kind]


def _read(folder: fs.FileSystem, path: str) -> pa.Table:
    with folder.open_input_file(path) as file:
        return pq.ParquetFile(file).read()


def _written(folder: fs.FileSystem, log: deltalog.Log, details: list[str]) -> tuple[pa.Table, int]:
    """Return the rows of every file that the newest version names, and how many of these files cannot be read."""
    parts, unreadable = [], 0
    for path, count in sorted(log.files.items()):
        try:
            parts.append(_read(folder, path))
        except (OSError, pa.ArrowInvalid) as error:
            unreadable += 1
            details.append(f"{path} is in the table and cannot be read ({type(error).__name__}): {count} rows")
    if not parts:
        return pa.table({PARTITION: pa.array([], pa.string())}), unreadable
    whole = pa.concat_tables(parts, promote_options="default")  # Spark writes "never null" where delta-rs does not
    return whole, unreadable


def _expected(
    landing: fs.FileSystem, landed: list[LandedFile], options: pcsv.ConvertOptions, details: list[str]
) -> pa.Table:
    """Return the rows that the table should have, in its types: each landed row, with its file's partition and offset."""
    parts = []
    for file in landed:
        if file.offset is None:
            details.append(f"{file.path} landed and is not in the index")
        with landing.open_input_file(file.path) as content:
            rows = pcsv.read_csv(content, convert_options=options)
        rows = rows.append_column(PARTITION, pa.array([file.partition] * rows.num_rows, pa.string()))
        parts.append(rows.append_column(OFFSET, pa.array([file.offset] * rows.num_rows, pa.int64())))
    return pa.concat_tables(parts) if parts else pa.table({PARTITION: pa.array([], pa.string())})


def _compared(expected: pa.Table, written: pa.Table, details: list[str]) -> tuple[int, int]:
    """Count the missing and the surplus rows, as multisets over all landed columns, with partition and offset."""
    if not written.num_rows or not expected.num_rows:
        return expected.num_rows, written.num_rows
    columns = [c for c in expected.column_names if c in written.column_names]
    if lost := set(expected.column_names) - set(columns):
        details.append(f"the table lacks the columns {', '.join(sorted(lost))}")
    both = [
        _signed(expected.select(columns), -1),
        _signed(written.select(columns).cast(expected.select(columns).schema), 1),
    ]
    counts = pa.concat_tables(both).group_by(columns).aggregate([(SIGN, "sum")])
    wrong = counts.filter(pc.not_equal(counts[f"{SIGN}_sum"], 0))
    sums = wrong[f"{SIGN}_sum"].to_pylist()
    where = Counter(zip(wrong[PARTITION].to_pylist(), wrong[OFFSET].to_pylist(), (s > 0 for s in sums), strict=True))
    for (partition, offset, surplus), rows in sorted(where.items(), key=str):
        details.append(f"{partition} offset {offset}: {rows} distinct rows {'too many' if surplus else 'missing'}")
    return -sum(s for s in sums if s < 0), sum(s for s in sums if s > 0)


def _signed(rows: pa.Table, sign: int) -> pa.Table:
    return rows.append_column(SIGN, pa.array([sign] * rows.num_rows, pa.int64()))


def _ranges(log: deltalog.Log, files: Mapping[str, int], details: list[str]) -> tuple[int, int]:
    """Count the offsets below each partition's number of files that no range covers, and those that two ranges cover."""
    covered: dict[str, Counter[int]] = {partition: Counter() for partition in files}
    for commit in log.commits:
        for partition, (start, end) in ranges(commit).items():
            covered.setdefault(partition, Counter()).update(range(start, end))
    gaps = overlaps = 0
    for partition, offsets in sorted(covered.items()):
        never = [o for o in range(files.get(partition, 0)) if o not in offsets]
        twice = [o for o, times in offsets.items() if times > 1]
        gaps, overlaps = gaps + len(never), overlaps + len(twice)
        if never or twice:
            details.append(f"{partition}: offsets never committed {never}, committed twice {twice}")
    return gaps, overlaps


def _orphans(folder: fs.FileSystem, log: deltalog.Log) -> list[fs.FileInfo]:
    """Return the Parquet files below the table that neither the newest version nor an earlier one names."""
    named = set(log.files) | {path for commit in log.commits for path in (*commit.added, *commit.removed)}
    found = (one for one in _list_files(folder, "parquet") if deltalog.LOG not in one.path.split("/"))
    return [one for one in found if one.path not in named]


def _quarantined(folder: fs.FileSystem) -> int:
    return sum(rows or 0 for rows in deltalog.read(folder).files.values()) if deltalog.exists(folder) else 0
