"""What another program made of a Delta table that rota cannot go along with.

Law: where what rota writes would be read as something else, it writes nothing, and says which program must do what. Where
a file that the table names is gone, a person is told.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from rota.errors import EnvironmentFailed, ForeignTable
from rota.ledger.schema import OFFSET, PARTITION

MODE, VECTORS = "delta.columnMapping.mode", "deletionVectors"
UNKNOWN = "Unsupported table features"  # how delta-rs begins, where it does not write a feature
NAMED = 5  # files of which it says what stood in them


def check_writable(location: str, handle: DeltaTable, removes: Collection[str]) -> None:
    """Raises ForeignTable where columns have other names in files than in the table; EnvironmentFailed where a file of
    `removes` has rows that another program deleted without writing it anew: a log keeps such a file beside its like."""
    if why := explain_mapping(location, handle):
        raise ForeignTable(f"{why}. Nothing was written")
    if not removes or VECTORS not in (handle.protocol().reader_features or ()):
        return
    for path in pa.table(handle.deletion_vectors())["filepath"].to_pylist():
        if found := next((one for one in removes if str(path).endswith(f"/{one}")), ""):
            raise EnvironmentFailed(
                f"{found} of {location} has rows that another program deleted in place. Nothing was replaced. Let that "
                f"program write it anew, such as by REORG TABLE ... APPLY (PURGE), and replay it then"
            )


def check_known(location: str, error: Exception) -> None:
    """Raises EnvironmentFailed where delta-rs refused to write for a feature that it does not know."""
    if UNKNOWN in str(error):
        raise EnvironmentFailed(
            f"{location} has features, by another program, that delta-rs does not write ({error}). Nothing was written. "
            f"Take them away there: ALTER TABLE ... DROP FEATURE"
        ) from error


def explain_mapping(location: str, handle: DeltaTable) -> str:
    """Why columns that rota writes would be null for others, with the next step; empty where they are not."""
    if (mode := handle.metadata().configuration.get(MODE, "none")) == "none":
        return ""
    return (
        f"{location} has {MODE} {mode!r}, by another program: what rota writes would be null for it. Take it away there: "
        f"ALTER TABLE ... SET TBLPROPERTIES ('{MODE}' = 'none')"
    )


def explain_gone(location: str, files: pa.Table, exists: Callable[[str], bool], most: int | None) -> str:
    """Which of the newest `most` files, or of all, are gone, and the next step; empty if none is. A vacuum without
    retention, by another program, takes what a run has written and not committed yet."""
    newest = files.sort_by([("modification_time", "descending")]).slice(0, most)
    gone = [one for one in newest.to_pylist() if not exists(one["path"])]
    if not gone:
        return ""
    more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
    spans = dict.fromkeys(filter(None, map(_name_span, gone[:NAMED])))
    of = f" what stood there: {'; '.join(spans)}{', and so on' if len(gone) > NAMED else ''}" if spans else ""
    return (
        f"{location} names {gone[0]['path']}{more}, and it is gone: nobody can read the table. Bring it back; or call "
        f"DeltaTable({location!r}).repair(), then: rota adopt, and replay{of}"
    )


def _name_span(said: Mapping[str, Any]) -> str:
    """Of which offsets the file held rows, as far as its statistics tell."""
    low, high, first, last = (said.get(f"{end}.{name}") for name in (PARTITION, OFFSET) for end in ("min", "max"))
    if low is None or low != high or first is None or last is None:
        return ""
    return f"{low} from {first} to {int(last) + 1}"
