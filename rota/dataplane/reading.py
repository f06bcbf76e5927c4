"""A pipeline's rows for whoever reads plain Parquet: the files of the newest version, and no others.

Law: a reader of these files sees every committed row once. One that lists the folder instead also sees what died halfway.
"""

from pathlib import Path
from urllib.parse import unquote, urlparse

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError


def files(table: Path | str) -> list[str]:
    """The Parquet files of the newest version of the Delta table at `table`; none if there is no table yet."""
    try:
        uris = DeltaTable(table).file_uris()
    except TableNotFoundError:
        return []
    return [unquote(urlparse(uri).path) if uri.startswith("file:") else uri for uri in uris]
