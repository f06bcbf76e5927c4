"""Opening and founding a Delta table of ours: an absent table is None, a disk that fails is the environment's fault.

Law: a folder may have any name that delta-rs can open, and the others are refused in one line. delta-rs says where a file is
as a URL (`resolve_path` gives the path), and has no history of a folder with `#` or `?` in its name: a `TableHandle` reads
the log.
"""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable, Field, Schema, TableFeatures
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from rota.dataplane.delta.transactions import read_transactions
from rota.errors import ConfigError, EnvironmentFailed

TAKEN = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f\ud800-\udfff]")  # delta-rs decodes the first, and has no others


class TableHandle(DeltaTable):  # type: ignore[misc]  # delta-rs has no types
    """A table at one version, which reads its transactions once.

    Law: `transaction_version` speaks of the version that the handle has now, the one on which it commits.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._log = path / "_delta_log"
        self._known: tuple[int, Mapping[str, int] | None] = (-1, None)

    def transaction_version(self, app_id: str) -> int | None:
        """The version of this transaction; None: there is none."""
        version = self.version()
        if self._known[0] != version:
            self._known = version, read_transactions(self._log, version)
        known = self._known[1]
        found: int | None = super().transaction_version(app_id) if known is None else known.get(app_id)
        return found

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """What the newest versions say of themselves, newest first, down to where the log was shortened.

        Read by their names: delta-rs lists the whole log, and numbers them wrongly where one says nothing of itself."""
        newest = self.version()
        versions = range(newest, -1 if limit is None else max(-1, newest - limit), -1)
        try:
            return list(takewhile(bool, (_read_commit_info(self._log, version) for version in versions)))
        except (OSError, ValueError) as error:
            raise EnvironmentFailed(
                f"{self._log} cannot be read ({error}). Check the disk; or bring it back from a copy, then: rota adopt"
            ) from error


def open_table(path: Path) -> DeltaTable | None:
    """The newest version; None when there is no table. Raises EnvironmentFailed, ConfigError for a name that cannot be."""
    _opens(path)
    try:
        return TableHandle(path)
    except TableNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentFailed(
            f"{path} cannot be read ({describe_error(error)}). Check the disk and its rights"
        ) from error
    except DeltaError as error:
        raise EnvironmentFailed(
            f"{path} is no table that can be read ({describe_error(error)}). Bring its _delta_log back from a copy, then: "
            f"rota adopt"
        ) from error


def stamp_version(path: Path, version: int) -> tuple[int, int, int] | None:
    """What is another value once the table at `path` has a newer version than this, or another log. None: it has already."""
    log = path / "_delta_log"
    try:
        seen = (log / f"{version:020}.json").stat()
    except OSError:
        return None
    return None if (log / f"{version + 1:020}.json").exists() else (seen.st_ino, seen.st_mtime_ns, seen.st_size)


def create_table(path: Path, schema: Schema, configuration: Mapping[str, str | None] | None = None) -> DeltaTable:
    """The table, made by whoever is first. Raises EnvironmentFailed, ConfigError."""
    _opens(path)
    try:
        DeltaTable.create(path, schema, mode="ignore", configuration=configuration)
    except CommitFailedError:
        pass  # somebody else was first
    except (DeltaError, OSError) as error:
        raise EnvironmentFailed(
            f"{path} cannot be made ({describe_error(error)}). Check the disk and its rights"
        ) from error
    return TableHandle(path)


def add_columns(table: DeltaTable, added: Sequence[Field]) -> None:
    """Adds these columns in a commit of their own. Raises as deltalake does.

    A `timestamp_ntz` inside a map is one that deltalake's own look does not find: without the feature it refuses the column.
    """
    known = table.protocol().writer_features or ()
    if "timestampNtz" not in known and any('"timestamp_ntz"' in one.to_json() for one in added):
        table.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
    table.alter.add_columns(added)


def _read_commit_info(log: Path, version: int) -> dict[str, Any]:
    """The `commitInfo` of a version, and its number; empty where it is not there."""
    try:
        with (log / f"{version:020}.json").open(encoding="utf-8", newline="\n") as lines:  # the first, as all write it
            infos = (json.loads(line).get("commitInfo") for line in lines if '"commitInfo"' in line)
            return {**next(filter(None, infos), {}), "version": version}
    except FileNotFoundError:
        return {}


def read_entry(path: Path, version: int) -> str:
    """What the log says at this version, as it is written there. Raises EnvironmentFailed."""
    try:
        return (path / "_delta_log" / f"{version:020}.json").read_text()
    except OSError as error:
        raise EnvironmentFailed(f"The log of {path} cannot be read ({error}). Check the disk and its rights") from error


def resolve_path(path: Path, uri: str) -> Path:
    """The file of the table at `path` that delta-rs calls so."""
    return path / unquote(uri.rpartition("://")[2])


def _opens(path: Path) -> None:
    if taken := TAKEN.search(str(path)):
        raise ConfigError(
            f"A Delta table cannot be in {str(path)!r}: {taken[0]!r} is in its name. Give it another path"
        )


def describe_error(error: Exception) -> str:
    """What delta-rs says, in one line of some length and without its colours, arrows and stacks."""
    said = re.sub(r"\x1b\[[\d;]*m|\n\s+0: .*", "", str(error), flags=re.DOTALL)
    return " ".join(re.sub(r"\s*↳\s*", ": ", said).split())[:400]
