"""Finds data files that the log names and the store lacks: no reader can read such a table."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from rota.record import OFFSET, PARTITION

NAMED = 5  # files whose offsets the error names


def explain_gone(location: str, files: pa.Table, exists: Callable[[str], bool], most: int | None) -> str:
    """Return which files are gone, and the next step; empty if none is.

    A vacuum without retention, by another program, deletes files that a run has written and not committed yet.

    Args:
        files: see `Version.files`.
        most: check only the newest files, up to this number; None for all.
    """
    newest = files.sort_by([("modification_time", "descending")]).slice(0, most)
    gone = [one for one in newest.to_pylist() if not exists(one["path"])]
    if not gone:
        return ""
    more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
    spans = dict.fromkeys(filter(None, map(name_span, gone[:NAMED])))
    of = f" what was there: {'; '.join(spans)}{', and so on' if len(gone) > NAMED else ''}" if spans else ""
    return (
        f"{location} names {gone[0]['path']}{more}, and it is gone: no reader can read the table. Bring it back; or call "
        f"DeltaTable({location!r}).repair(), then: rota adopt, and replay{of}"
    )


def name_span(entry: Mapping[str, Any]) -> str:
    """Return the partitions and offsets of the file's rows, from its statistics; empty if the statistics lack them."""
    low, high, first, last = (entry.get(f"{end}.{name}") for name in (PARTITION, OFFSET) for end in ("min", "max"))
    if None in (low, high, first, last):
        return ""
    return f"{low if low == high else f'{low} to {high}'} from {first} to {int(str(last)) + 1}"
