"""Makes a counterexample small: one file, no transform, fewer lines, while it still fails. A Parquet file stays whole."""

import re
from collections.abc import Callable
from dataclasses import replace

from tests.conservation.case import Case
from tests.conservation.checker import Judgement
from tests.conservation.transforms import Transform

TRIES = 40
WHOLE = (".parquet", ".gz", ".bz2")


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

    if files := tuple(f for f in case.files if (f.key, f.name) == (fault.key, fault.name)):
        smaller(replace(best, files=files))
    if best.transform.text:
        smaller(replace(best, transform=Transform()))
    pieces, head = 2, int(case.options.get("header") == "true")
    while left > 0 and len(best.files) == 1 and not best.files[0].name.endswith(WHOLE):
        (file,) = best.files
        lines = re.findall(rb"[^\n]*\n|[^\n]+$", file.data)
        size = max(1, (len(lines) - head) // pieces)
        cuts = (b"".join(lines[:at] + lines[at + size :]) for at in range(head, len(lines), size))
        if not any(smaller(replace(best, files=(replace(file, data=cut),))) for cut in cuts):
            if size == 1:
                break
            pieces *= 2
    return best, why
