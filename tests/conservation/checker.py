"""The law of conservation: every record of a file is in exactly one of the two tables, each where it belongs.

`main` has exactly the good records with exactly their values, as the transform leaves them; `quarantine` has exactly the
bad ones with their raw text, file, line and reason. What stops a partition is something at the very offset at which it
stopped, and nothing of that offset or behind it is in a table.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.conservation.canonical import fold, values
from tests.conservation.case import Case, File
from tests.conservation.oracle import BAD, EITHER, GOOD, Broken, Oracle, Record, is_torn
from tests.dataplane.conftest import log

Place = tuple[str, int]  # of a file: partition and offset
Row = tuple[Any, ...]
Aside = tuple[int | None, str, str, str]  # line, raw text, file, reason


@dataclass
class Tables:
    """What the tables hold of each file, and how far each partition is."""

    main: dict[Place, Counter[Row]] = field(default_factory=lambda: defaultdict(Counter))
    aside: dict[Place, list[Aside]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """`count` records of a file are not where they belong. `kind` is one of:

    lost (in neither table), doubled (once too often), misplaced (in the other table), wrong (in main with other values),
    mislaid (in quarantine with another file, line or reason), stopped (a partition stops, or does not, against the rules),
    misread (the oracle has no rule: a fault of this test)."""

    kind: str
    count: int
    key: str
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Judgement:
    faults: tuple[Fault, ...]
    records: Mapping[str, int]  # good, bad, either

    def counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for fault in self.faults:
            found[fault.kind] += fault.count
        return found


def read_tables(table: Path, names: Sequence[str]) -> Tables:
    """The tables as their logs and files tell; `names` are main's columns after the two of rota."""
    found, attempts = Tables(), {}
    if not (table / "main" / "_delta_log").exists():
        return found
    main = log(table / "main")
    for commit in main.said("commit"):
        for partition, (start, end) in json.loads(str(commit["rota.ranges"])).items():
            assert start == found.ends.get(partition, 0), "a gap or an overlap of ranges"
            found.ends[partition] = end
            attempts.update({(partition, o): commit["rota.attempt"] for o in range(start, end)})
    for file in main.files:
        got = pq.ParquetFile(file).read()
        absent = [n for n in names if n not in got.column_names]
        assert not absent, f"main has no column {absent}"
        places = zip(*(values(got.column(n)) for n in ("_partition", "_offset")), strict=True)
        rows = zip(*(values(got.column(n)) for n in names), strict=True)
        for place, of_one in groupby(zip(places, rows, strict=True), key=itemgetter(0)):
            found.main[place].update(map(itemgetter(1), of_one))
    if (table / "quarantine" / "_delta_log").exists():
        for file in log(table / "quarantine").files:
            got = pq.ParquetFile(file).read()
            of = ("_partition", "_offset", "_attempt", "_position", "_raw", "_file", "_reason")
            before = ""
            for partition, offset, attempt, *rest in zip(*(values(got.column(n)) for n in of), strict=True):
                before = rest[1] = before if rest[1] is None else rest[1]  # a long text that rows share is there once
                if attempts.get((partition, offset)) == attempt:
                    found.aside[partition, offset].append(tuple(rest))  # type: ignore[arg-type]
    return found


def judge(case: Case, tables: Tables, partition_of: Mapping[str, str], parked: Mapping[str, str]) -> Judgement:
    """What breaks the law. `partition_of` gives the partition of a key, `parked` the reason of one that stopped."""
    faults: list[Fault] = []
    records: Counter[str] = Counter()
    known: set[Place] = set()
    oracle = Oracle(case)
    for key, files in case.by_key().items():
        partition = partition_of[key]
        end = tables.ends.get(partition, 0)
        for offset, file in enumerate(files):
            place = (partition, offset)
            known.add(place)
            try:
                held = oracle.read(file)
            except ValueError as error:
                faults.append(Fault("misread", 1, key, file.name, str(error)))
                continue
            if offset >= end:
                faults += _judge_stop(case, key, file, held, offset == end, parked.get(partition, ""))
                held = []
            elif isinstance(held, Broken):
                faults.append(Fault("stopped", 1, key, file.name, f"consumed, and it is broken: {held.why}"))
                continue
            records.update(r.verdict for r in held)
            faults += _judge_file(case, file, held, tables.main.get(place, Counter()), tables.aside.get(place, []))
    for place in {*tables.main, *tables.aside} - known:
        faults.append(Fault("doubled", 1, *map(str, place), "rows of an offset that is not"))
    return Judgement(tuple(faults), records)


def _judge_stop(case: Case, key: str, file: File, held: list[Record] | Broken, here: bool, reason: str) -> list[Fault]:
    """A partition may stop before a broken file, or one with too many bad records."""
    if not here:
        return []
    if not reason:
        return [Fault("stopped", 1, key, file.name, "not consumed, and its partition is not parked")]
    if isinstance(held, Broken) or (not held and "Change the schema of files(...)" in reason):
        return []  # a file without rows holds nothing back
    bad = sum(r.verdict in (BAD, EITHER) for r in held)
    if bad and "max_bad_ratio" in reason and bad > case.ratio * len(held):
        return []
    return [Fault("stopped", 1, key, file.name, f"parked without need: {reason}")]


def _judge_file(
    case: Case, file: File, records: Iterable[Record], main: Counter[Row], aside: list[Aside]
) -> list[Fault]:
    """One file's records against its rows in the two tables."""
    rows: list[Row] = []
    others: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.verdict == GOOD:
            rows += record.rows
        else:
            others[_key(record.raw)].append(record)
    wanted = Counter(made for row in rows for made in case.transform.rows(row))
    texts = Counter(_key(raw) for _, raw, _, _ in aside)
    missed, free, aside_missing, aside_extra = [], 0, 0, 0
    for text, same in others.items():
        there, sure = texts.pop(text, 0), sum(r.verdict == BAD for r in same)
        missed += same[: max(0, sure - there)]
        aside_missing += max(0, sure - there)
        free += max(0, len(same) - max(there, sure))
        if not text.lstrip("\ufeff \t").startswith("["):  # of a list each record is kept with the whole text
            aside_extra += max(0, there - len(same))
    aside_extra += sum(texts.values())
    same = dict.__eq__(wanted, main)  # a Counter compares in Python, one by one
    lacking, surplus = (Counter(), Counter()) if same else (wanted - main, main - wanted)
    main_missing, main_extra = sum(lacking.values()), sum(surplus.values())
    if case.transform.counted:  # what may be either, and was not set aside, is a row of main
        main_missing += max(0, free - main_extra)
    main_extra = max(0, main_extra - free) if case.transform.counted or not free else 0
    seen = {
        "bad records that are not in quarantine": [(r.line, r.raw[:200], r.why) for r in missed[:3]],
        "rows that are not in main": list(lacking)[:3],
        "rows in main that should not be": list(surplus)[:3],
        "texts in quarantine that should not be": [t[:200] for t in list(texts)[:3]],
    }
    detail = "; ".join(f"{what}: {some!r}" for what, some in seen.items() if some)[:3000]
    moved, back = min(aside_missing, main_extra), min(main_missing, aside_extra)
    aside_missing, main_extra, main_missing, aside_extra = (
        aside_missing - moved, main_extra - moved, main_missing - back, aside_extra - back,
    )  # fmt: skip
    wrong = min(main_missing, main_extra)
    counts = {
        "misplaced": moved + back,
        "wrong": wrong,
        "lost": aside_missing + main_missing - wrong,
        "doubled": aside_extra + main_extra - wrong,
    }
    faults = [Fault(kind, count, file.key, file.name, detail) for kind, count in counts.items() if count]
    return faults + _find_mislaid(file, others, aside)


def _find_mislaid(file: File, by_text: Mapping[str, list[Record]], aside: list[Aside]) -> list[Fault]:
    """File, line and reason of what was set aside. A line may be unknown where records span lines, where the text is no
    UTF-8, and where not all agree what a line is."""
    wrong = []
    unsure = bool(aside) and is_torn(file)
    for position, raw, name, reason in aside:
        same = by_text.get(_key(raw), [])
        lines = {r.line for r in same}
        if same and (
            name != f"{file.key}/{file.name}"
            or not reason
            or "\n" in reason
            or not (unsure or position in lines or (position is None and (lines == {0} or "\ufffd" in raw)))
        ):
            wrong.append((position, sorted(lines)[:5], raw[:200], name, reason))
    return [Fault("mislaid", len(wrong), file.key, file.name, f"{wrong[:3]!r}")] if wrong else []


def _key(raw: str) -> str:
    """Of the ends of the lines that a record spans Spark folds some."""
    return str(fold(raw)).replace("\r\n", "\n").rstrip("\r\n")
