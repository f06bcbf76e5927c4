"""What another program made of a Delta table that rota cannot go along with.

Law: where what rota writes would be read as something else, it writes nothing, and says which program must do what.
"""

import re
from collections.abc import Collection, Iterable

import pyarrow as pa
from deltalake import DeltaTable

from rota.errors import EnvironmentFailed, ForeignTable

MODE, VECTORS = "delta.columnMapping.mode", "deletionVectors"
# Words of delta-rs 1.6.6. Where a release says one otherwise, the error is still the environment's, without what to do. For
# `CHANGED` the run then fails, and the next one goes on.
UNKNOWN = "Unsupported table features"  # how it begins, where it does not write a feature
UNREAD = "Unsupported"  # where it does not read one
CHANGED = "Metadata changed"  # somebody else added columns meanwhile


def check_writable(location: str, handle: DeltaTable, removes: Collection[str]) -> None:
    """Raises ForeignTable where columns have other names in files than in the table; EnvironmentFailed where a file of
    `removes` has rows that another program deleted without writing it anew: a log keeps such a file beside its like."""
    if why := explain_mapping(location, handle):
        raise ForeignTable(f"{why}. Nothing was written")
    if removes and (found := find_vectored(handle, removes)):
        raise EnvironmentFailed(
            f"{min(found)} of {location} has rows that another program deleted in place. Nothing was replaced. Let that "
            f"program write it anew, such as by REORG TABLE ... APPLY (PURGE), and replay it then"
        )


def find_vectored(handle: DeltaTable, paths: Iterable[str]) -> set[str]:
    """Those of these files that have rows which another program deleted in place, by a deletion vector."""
    if VECTORS not in (handle.protocol().reader_features or ()):
        return set()
    parts = (str(url).split("/") for url in pa.table(handle.deletion_vectors())["filepath"].to_pylist())
    return {"/".join(of[at:]) for of in parts for at in range(len(of))}.intersection(paths)


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


def describe_error(error: Exception) -> str:
    """What delta-rs says, in one line of some length and without its colours, arrows and stacks."""
    said = re.sub(r"\x1b\[[\d;]*m|\n\s+0: .*", "", str(error), flags=re.DOTALL)
    return " ".join(re.sub(r"\s*↳\s*", ": ", said).split())[:400]
