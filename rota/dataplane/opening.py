"""Opening and founding a Delta table of ours: an absent table is None, a disk that fails is the environment's fault.

Law: a folder may have any name that delta-rs can open, and the others are refused in one line. delta-rs says where a file is
as a URL (`local` gives the path), and has no history of a folder with `#` or `?` in its name: `history` reads the log.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from rota.errors import ConfigError, EnvironmentFailed

TAKEN = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f\ud800-\udfff]")  # delta-rs decodes the first, and has no others


def opened(path: Path) -> DeltaTable | None:
    """The newest version; None when there is no table. Raises EnvironmentFailed, ConfigError for a name that cannot be."""
    _opens(path)
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentFailed(f"{path} cannot be read ({plain(error)}). Check the disk and its rights") from error
    except DeltaError as error:
        raise EnvironmentFailed(
            f"{path} is no table that can be read ({plain(error)}). Bring its _delta_log back from a copy, then: rota adopt"
        ) from error


def created(path: Path, schema: Schema, configuration: Mapping[str, str | None] | None = None) -> DeltaTable:
    """The table, made by whoever is first. Raises EnvironmentFailed, ConfigError."""
    _opens(path)
    try:
        DeltaTable.create(path, schema, mode="ignore", configuration=configuration)
    except CommitFailedError:
        pass  # somebody else was first
    except (DeltaError, OSError) as error:
        raise EnvironmentFailed(f"{path} cannot be made ({plain(error)}). Check the disk and its rights") from error
    return DeltaTable(path)


def history(path: Path, table: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
    """What the newest commits say of themselves, newest first, each with its `version`; back to where the log begins."""
    return list(islice(_said(path, table.version()), limit))


def entry(path: Path, version: int) -> str:
    """What the log says at this version, as it is written there. Raises EnvironmentFailed."""
    try:
        return _file(path, version).read_text()
    except OSError as error:
        raise _unread(path, error) from error


def local(path: Path, uri: str) -> Path:
    """The file of the table at `path` that delta-rs calls so."""
    return path / unquote(uri.rpartition("://")[2])


def _said(path: Path, newest: int) -> Iterator[dict[str, Any]]:
    for version in range(newest, -1, -1):
        try:
            with _file(path, version).open("rb") as lines:
                line = next((line for line in lines if line.startswith(b'{"commitInfo"')), b'{"commitInfo":{}}')
            yield {**json.loads(line)["commitInfo"], "version": version}
        except FileNotFoundError:
            return  # what a checkpoint holds has no history
        except (OSError, ValueError) as error:
            raise _unread(path, error) from error


def _file(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020}.json"


def _unread(path: Path, error: Exception) -> EnvironmentFailed:
    return EnvironmentFailed(f"The log of {path} cannot be read ({error}). Check the disk and its rights")


def _opens(path: Path) -> None:
    if taken := TAKEN.search(str(path)):
        raise ConfigError(
            f"A Delta table cannot be in {str(path)!r}: {taken[0]!r} is in its name. Give it another path"
        )


def plain(error: Exception) -> str:
    """What delta-rs says, in one line of some length and without its colours, arrows and stacks."""
    said = re.sub(r"\x1b\[[\d;]*m|\n\s+0: .*", "", str(error), flags=re.DOTALL)
    return " ".join(re.sub(r"\s*↳\s*", ": ", said).split())[:400]
