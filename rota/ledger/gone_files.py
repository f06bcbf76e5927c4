"""Files that a table names and that are gone: no reader can read the table, and the error names the next step."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from rota.record import OFFSET, PARTITION

NAMED = 5  # files of which it says what stood in them


def explain_gone(location: str, files: pa.Table, exists: Callable[[str], bool], most: int | None) -> str:
    """Which of the newest `most` files, or of all, are gone, and the next step; empty if none is. A vacuum without
    retention, by another program, takes what a run has written and not committed yet."""
    newest = files.sort_by([("modification_time", "descending")]).slice(0, most)
    gone = [one for one in newest.to_pylist() if not exists(one["path"])]
    if not gone:
        return ""
    more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
    spans = dict.fromkeys(filter(None, map(name_span, gone[:NAMED])))
    of = f" what stood there: {'; '.join(spans)}{', and so on' if len(gone) > NAMED else ''}" if spans else ""
    return (
        f"{location} names {gone[0]['path']}{more}, and it is gone: no reader can read the table. Bring it back; or call "
        f"DeltaTable({location!r}).repair(), then: rota adopt, and replay{of}"
    )


def name_span(said: Mapping[str, Any]) -> str:
    """Of which offsets the file held rows, as far as its statistics tell."""
    low, high, first, last = (said.get(f"{end}.{name}") for name in (PARTITION, OFFSET) for end in ("min", "max"))
    if None in (low, high, first, last):
        return ""
    return f"{low if low == high else f'{low} to {high}'} from {first} to {int(str(last)) + 1}"
