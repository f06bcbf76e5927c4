"""The verifier: every row that landed against every row that the table holds. JSON and pyarrow; nothing of rota.

Law: `right` only if each number that landed in a partition is in the table once, the ranges of the commits follow each
other without a gap or an overlap, and no commit of a partition has an older token than one before it.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class Count:
    """Rows landed, written, lost and doubled; offsets that no commit covers (`gaps`), or two do (`overlaps`); tokens older
    than one before (`stale`). `behind` offsets are after the last commit of their partition: their rows are lost so far."""

    landed: int = 0
    written: int = 0
    lost: int = 0
    doubled: int = 0
    gaps: int = 0
    overlaps: int = 0
    stale: int = 0
    commits: int = 0
    behind: int = 0

    @property
    def right(self) -> bool:
        """Nothing is lost, doubled or out of order."""
        return self.landed == self.written > 0 and not any(
            (self.lost, self.doubled, self.gaps, self.overlaps, self.stale)
        )


Landed = Sequence[tuple[str, Sequence[int]]]  # of each offset: its partition, and the numbers of its records


def read_files(landing: Path) -> Landed:
    """Return what the JSON files of `landing`, a folder a key, hold."""
    return [
        (f"p:{path.parent.name}", [json.loads(line)["n"] for line in path.read_text().splitlines()])
        for path in landing.glob("*/[!.]*.json")
    ]


def count(offsets: Landed, table: Path) -> Count:
    """Count what landed against `_partition` and `n` of the Delta table."""
    entries = list(_read_log(table))
    landed = Counter((partition, number) for partition, numbers in offsets for number in numbers)
    written = Counter(row for path in _find_files(entries) for row in _read_rows(table / path))
    commits = [one["commitInfo"] for one in entries if one.get("commitInfo", {}).get("rota.op") == "commit"]
    gaps, overlaps, ends = _compare_ranges(commits)
    return Count(
        landed.total(),
        written.total(),
        (landed - written).total(),
        (written - landed).total(),
        gaps,
        overlaps,
        _count_stale(entries),
        len(commits),
        (Counter(partition for partition, _ in offsets) - ends).total(),
    )


def _read_log(table: Path) -> Iterator[Mapping[str, Any]]:
    """The actions of every version, from the first to the last."""
    versions = sorted((table / "_delta_log").glob("*.json"))
    assert [int(path.stem) for path in versions] == list(range(len(versions))), "a version is missing"
    for path in versions:
        yield from (json.loads(line) for line in path.read_text().splitlines())


def _find_files(entries: list[Mapping[str, Any]]) -> list[str]:
    """The files that the newest version names, once for each time that it names them."""
    files = Counter[str]()
    for one in entries:
        if "add" in one:
            files[unquote(one["add"]["path"])] += 1
        elif "remove" in one:
            del files[unquote(one["remove"]["path"])]
    return list(files.elements())


def _read_rows(path: Path) -> Iterator[tuple[str, int]]:
    found = pq.ParquetFile(path).read(columns=["_partition", "n"]).to_pydict()
    return zip(found["_partition"], found["n"], strict=True)


def _compare_ranges(commits: list[Mapping[str, str]]) -> tuple[int, int, Counter[str]]:
    ends, gaps, overlaps = Counter[str](), 0, 0
    for one in commits:
        for partition, (start, end) in json.loads(one["rota.ranges"]).items():
            gaps += max(0, start - ends[partition])
            overlaps += max(0, ends[partition] - start)
            ends[partition] = max(end, ends[partition])
    return gaps, overlaps, ends


def _count_stale(entries: list[Mapping[str, Any]]) -> int:
    newest, stale = Counter[str](), 0
    for one in entries:
        for partition, token in json.loads(one.get("commitInfo", {}).get("rota.tokens", "{}")).items():
            stale += token < newest[partition]
            newest[partition] = max(token, newest[partition])
    return stale
