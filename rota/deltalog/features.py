"""The features and settings of a Delta table that another program made, and the errors of delta-rs.

Laws:
1. If other programs would read a commit differently, the commit is refused. The error names what to change and where.
2. A commit is possible if delta-rs writes each feature of the table, and no feature or setting restricts rows. This package
   evaluates no SQL. It refuses a CHECK constraint, an invariant, a NOT NULL column, a generated or identity column, and
   partition columns. It refuses unknown features.
"""

import json
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from glob import glob
from itertools import chain
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema, TableFeatures
from deltalake.exceptions import DeltaError

from rota.deltalog.commits import FORMAT, State
from rota.deltalog.names import AFTER_COPY, OTHER_PATH, WRITER
from rota.deltalog.port import Draft
from rota.errors import EnvironmentFailed, ForeignTable

MODE, VECTORS = "delta.columnMapping.mode", "deletionVectors"
# Features of tables to which delta-rs 1.6.6 adds files. They change how files are read, but no log entry that is read here.
WRITTEN = frozenset(
    {
        "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping", VECTORS,
        "timestampNtz", "v2Checkpoint", "variantType", "variantType-preview",
    }
)  # fmt: skip
# Writer versions. Those up to LEGACY require only features that are listed above. With NAMED the protocol lists features.
LEGACY, NAMED = 5, 7
CONSTRAINT = "delta.constraints."  # settings of a table
ASKED = {  # key in the metadata of a column -> its meaning, and the next step
    "delta.invariants": ("an invariant on", OTHER_PATH),
    "delta.generationExpression": ("a generated column", OTHER_PATH),
    "delta.identity.start": ("an identity column", OTHER_PATH),
    "CURRENT_DEFAULT": ("a default value for", "Take it away there: ALTER TABLE ... ALTER COLUMN {} DROP DEFAULT"),
}
# Texts in errors of delta-rs 1.6.6. If a release changes UNREAD, EnvironmentFailed has another next step. If it changes
# CHANGED, the run fails, and the next run succeeds.
UNREAD = ("Unsupported", "a catalog-managed table")  # delta-rs does not read a feature
CHANGED = "Metadata changed"  # another writer added columns meanwhile


def is_read(protocol: Mapping[str, Any]) -> bool:
    """Return whether this package reads the log of a table with this protocol. delta-rs reads the files."""
    return protocol["minReaderVersion"] <= 3 and WRITTEN.issuperset(protocol.get("readerFeatures") or ())


def check_writable(location: str, state: State, draft: Draft[Any], vectored: Collection[str]) -> None:
    """Raise if the draft must not be committed to this table.

    Args:
        vectored: the removed files that have a deletion vector. Such files must stay.

    Raises: as `check_table`; EnvironmentFailed if rows must not be removed.
    """
    check_table(location, state)
    if draft.removes and draft.changes and state.metadata["configuration"].get("delta.appendOnly") == "true":
        raise EnvironmentFailed(
            f"{location} may only grow, by another program. Nothing was replaced. Allow it there: ALTER TABLE ... SET "
            f"TBLPROPERTIES ('delta.appendOnly' = 'false')"
        )
    if vectored:
        raise EnvironmentFailed(
            f"{min(vectored)} of {location} has rows that another program deleted in place. Nothing was replaced. Let that "
            f"program write it anew, such as by REORG TABLE ... APPLY (PURGE), and replay it then"
        )


def check_table(location: str, state: State) -> None:
    """Raise if the table requires something of writers that this package does not do.

    Raises:
        ForeignTable: columns have other names in files than in the table.
        EnvironmentFailed: a feature that this package does not write, or that restricts rows.
    """
    if why := _explain_mapping(location, state):
        raise ForeignTable(f"{why}. Nothing was written")
    if found := _list_unwritten(state.protocol):
        raise EnvironmentFailed(
            f"{location} has features, by another program, that {WRITER} does not write ({', '.join(found)}). Nothing was "
            f"written. Take them away there: ALTER TABLE ... DROP FEATURE"
        )
    for what, way in chain(_list_asked(state.metadata), _list_asked_columns(str(state.metadata["schemaString"]))):
        raise EnvironmentFailed(
            f"{location} has {what}, by another program. {WRITER} does not check or fill it. Nothing was written. {way}"
        )


def _list_asked(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each restriction of rows in the settings of a table, and the next step."""
    for setting in metadata["configuration"]:
        if setting.startswith(CONSTRAINT):
            name = setting.removeprefix(CONSTRAINT)
            yield f"the CHECK constraint {name}", f"Take it away there: ALTER TABLE ... DROP CONSTRAINT {name}"
    if columns := metadata.get("partitionColumns"):
        yield f"the partition columns {', '.join(columns)}", OTHER_PATH


@lru_cache(maxsize=64)
def _list_asked_columns(schema: str) -> tuple[tuple[str, str], ...]:
    """Return each restriction of rows in the columns of a table, and the next step."""
    return tuple(_walk("", json.loads(schema)))


def _walk(name: str, kind: Any) -> Iterator[tuple[str, str]]:
    """Yield the restrictions in a type of Delta, which was parsed from JSON, and below it."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        path = f"{name}.{field['name']}".lstrip(".")
        for key in ASKED.keys() & field.get("metadata", {}).keys():
            what, way = ASKED[key]
            yield f"{what} {path}", way.format(path)
        if not field.get("nullable", True):
            yield (
                f"the NOT NULL column {path}",
                f"Take that away there: ALTER TABLE ... ALTER COLUMN {path} DROP NOT NULL",
            )
        yield from _walk(path, field["type"])
    for key, part in (("containsNull", "elementType"), ("valueContainsNull", "valueType")):
        if not kind.get(key, True):
            yield f"values of {name} that may not be null", OTHER_PATH
        yield from _walk(name, kind.get(part))


def _list_unwritten(protocol: Mapping[str, Any]) -> list[str]:
    version = protocol["minWriterVersion"]
    if version == NAMED:
        return sorted(set(protocol.get("writerFeatures") or ()) - WRITTEN)
    return [] if version <= LEGACY else [f"writer version {version}"]


def find_vectored(handle: DeltaTable, paths: Iterable[str]) -> set[str]:
    """Return those of these files with a deletion vector."""
    parts = (str(url).split("/") for url in pa.table(handle.deletion_vectors())["filepath"].to_pylist())
    return {"/".join(of[at:]) for of in parts for at in range(len(of))}.intersection(paths)


def count_rows(handle: DeltaTable, protocol: Mapping[str, Any]) -> dict[str, int | None]:
    """Return path -> rows of each file of this version, without rows that were deleted in place; None if the log does not
    state them."""
    files = pa.table(handle.get_add_actions(flatten=True))
    counts = files["num_records"] if "num_records" in files.column_names else pa.nulls(files.num_rows)
    found = dict(zip(map(unquote, files["path"].to_pylist()), counts.to_pylist(), strict=True))
    if VECTORS in (protocol.get("readerFeatures") or ()):
        for one in pa.table(handle.deletion_vectors()).to_pylist():
            of = unquote(one["filepath"]).split("/")
            path = next(name for at in range(len(of)) if (name := "/".join(of[at:])) in found)
            found[path] = found[path] and found[path] - one["selection_vector"].count(False)
    return found


def _explain_mapping(location: str, state: State) -> str:
    """Return why new rows would be null for other programs, with the next step; empty if they would not."""
    if (mode := state.metadata["configuration"].get(MODE, "none")) == "none":
        return ""
    return (
        f"{location} has {MODE} {mode!r}, by another program: new rows would be null for it. Take it away "
        f"there: ALTER TABLE ... SET TBLPROPERTIES ('{MODE}' = 'none')"
    )


def add_columns(handle: DeltaTable, protocol: Mapping[str, Any], columns: str) -> None:
    """Add columns by delta-rs, and first the feature for `timestamp_ntz`, which delta-rs overlooks inside a map."""
    known = protocol.get("writerFeatures") or ()
    if "timestampNtz" not in known and '"timestamp_ntz"' in columns:
        handle.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
    handle.alter.add_columns(list(Schema.from_json(columns).fields))


def make_first_commit(schema: str, configuration: Mapping[str, str | None]) -> bytes:
    """Return the commit that creates a table, by delta-rs in a scratch folder.

    delta-rs 1.6.6 must not create the table in place: if another process is first, delta-rs commits the second create as
    version 1, and so gives the table another id.
    """
    with tempfile.TemporaryDirectory(prefix=f"{WRITER}-table-") as scratch:
        DeltaTable.create(scratch, Schema.from_json(schema), configuration=dict(configuration))
        (commit,) = glob(f"{scratch}/*/*.json")
        with open(commit, "rb") as file:
            return file.read()


def describe_handle(handle: DeltaTable) -> State:
    """Return the state of a table as delta-rs reads it. `transactions` is None."""
    meta, stated = handle.metadata(), handle.protocol()
    protocol = {
        "minReaderVersion": stated.min_reader_version, "readerFeatures": stated.reader_features,
        "minWriterVersion": stated.min_writer_version, "writerFeatures": stated.writer_features,
    }  # fmt: skip
    metadata = {
        "id": meta.id, "name": meta.name, "description": meta.description, "format": FORMAT,
        "schemaString": handle.schema().to_json(), "partitionColumns": meta.partition_columns,
        "createdTime": meta.created_time, "configuration": meta.configuration,
    }  # fmt: skip
    return State(handle.version(), protocol, metadata, None)


@contextmanager
def explain_errors(location: str, log: str) -> Iterator[None]:
    """Raise EnvironmentFailed, with the reason and the next step, if the body raises OSError or DeltaError."""
    try:
        yield
    except OSError as error:
        raise EnvironmentFailed(
            f"{location} cannot be read ({describe_error(error)}). Check the disk and its rights"
        ) from error
    except DeltaError as error:
        way = f"Bring its {log} back from a copy, {AFTER_COPY}"
        if any(word in str(error) for word in UNREAD):
            way = "Another program gave it a feature that delta-rs does not read: take it away there"
        raise EnvironmentFailed(f"{location} is no table that can be read ({describe_error(error)}). {way}") from error


def describe_error(error: Exception) -> str:
    """Return the message of delta-rs in one line of at most 400 characters, without its colours, arrows and stacks."""
    text = re.sub(r"\x1b\[[\d;]*m|\n\s+0: .*", "", str(error), flags=re.DOTALL)
    return " ".join(re.sub(r"\s*↳\s*", ": ", text).split())[:400]
