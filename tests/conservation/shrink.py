"""Makes a counterexample small: fewer files, no transform, fewer records, fewer columns, while it still fails."""

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow.parquet as pq

from tests.conservation.case import Case, File
from tests.conservation.checker import Judgement
from tests.conservation.transforms import Transform

TRIES = 40


def shrink(case: Case, first: Judgement, judge: Callable[[Case], Judgement]) -> tuple[Case, Judgement]:
    """A smaller case with a fault of the same kind, after at most `TRIES` judgements."""
    fault = first.faults[0]
    best, why, left = case, first, TRIES

    def smaller(other: Case) -> bool:
        nonlocal best, why, left
        if left <= 0:
            return False
        left -= 1
        found = judge(other)
        if not any(f.kind == fault.kind for f in found.faults):
            return False
        best, why = other, found
        return True

    for files in (
        [f for f in case.files if (f.key, f.name) == (fault.key, fault.name)],
        [f for f in case.files if f.key == fault.key],
    ):
        if files and smaller(replace(best, files=tuple(files))):
            break
    if best.transform.text:
        smaller(replace(best, transform=Transform()))
    if len(best.files) == 1:
        _drop_records(lambda: best, smaller)
    if best.format != "csv" and not best.transform.text:
        for column in best.schema:
            if len(best.schema) > 1:
                smaller(replace(best, schema=tuple(c for c in best.schema if c != column)))
    return best, why


def _drop_records(best: Callable[[], Case], smaller: Callable[[Case], bool]) -> None:
    """Takes pieces of the records away, halves first."""
    pieces = 2
    while True:
        case = best()
        found = list(_list_cuts(case, pieces))
        if any(smaller(other) for other in found):
            pieces = max(2, pieces - 1)
            continue
        if pieces >= _count(case):
            return
        pieces = min(pieces * 2, _count(case))


def _count(case: Case) -> int:
    (file,) = case.files
    return _rows(file) if case.format == "parquet" else len(_pieces(file.data))


def _rows(file: File) -> int:
    try:
        return int(pq.ParquetFile(io.BytesIO(file.data)).metadata.num_rows)
    except Exception:  # it need not be Parquet
        return 0


def _pieces(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+$", data)


def _list_cuts(case: Case, pieces: int) -> Iterator[Case]:
    """The case without each of so many pieces of its records."""
    (file,) = case.files
    count = _count(case)
    head = int(case.options.get("header") == "true")
    if count - head < 2 or file.name.endswith((".gz", ".bz2")):
        return
    size = max(1, (count - head) // pieces)
    for start in range(head, count, size):
        yield replace(case, files=(replace(file, data=_cut(case, file, start, start + size)),))


def _cut(case: Case, file: File, start: int, end: int) -> bytes:
    if case.format != "parquet":
        lines = _pieces(file.data)
        return b"".join(lines[:start] + lines[end:])
    import pyarrow as pa

    table = pq.ParquetFile(io.BytesIO(file.data)).read()
    sink = io.BytesIO()
    pq.write_table(pa.concat_tables([table.slice(0, start), table.slice(end)]), sink)
    return sink.getvalue()
