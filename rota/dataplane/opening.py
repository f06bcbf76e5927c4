"""Opening and founding a Delta table of ours: an absent table is None, a disk that fails is the environment's fault."""

import re
from collections.abc import Mapping
from pathlib import Path

from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from rota.errors import EnvironmentFailed


def opened(path: Path) -> DeltaTable | None:
    """The newest version; None when there is no table. Raises EnvironmentFailed."""
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
    """The table, made by whoever is first. Raises EnvironmentFailed."""
    try:
        DeltaTable.create(path, schema, mode="ignore", configuration=configuration)
    except CommitFailedError:
        pass  # somebody else was first
    except (DeltaError, OSError) as error:
        raise EnvironmentFailed(f"{path} cannot be made ({plain(error)}). Check the disk and its rights") from error
    return DeltaTable(path)


def plain(error: Exception) -> str:
    """What delta-rs says, in one line of some length and without its colours, arrows and stacks."""
    said = re.sub(r"\x1b\[[\d;]*m|\n\s+0: .*", "", str(error), flags=re.DOTALL)
    return " ".join(re.sub(r"\s*↳\s*", ": ", said).split())[:400]
